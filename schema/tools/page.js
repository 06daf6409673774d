"use strict";
// The search box: shows the operations, schemas, problems and menu entries that have all words. Without scripts there is no box.
const box = document.getElementById("search");
const parts = [...document.querySelectorAll("main > article, #problems ~ table tr, nav li")];
const texts = parts.map((part) => part.textContent.toLowerCase());
box.hidden = false;
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = false;
  parts.forEach((part, i) => {
    part.hidden = !words.every((word) => texts[i].includes(word));
    found ||= !part.hidden;
  });
  document.body.classList.toggle("searching", words.length > 0);
  document.getElementById("nothing").hidden = found;
});
for (const link of document.querySelectorAll("nav a"))
  link.addEventListener("click", () => { document.getElementById("menu").checked = false; });
