"""ONNX models in folders, and the files beside one, by the names that its tensors have for them."""

from __future__ import annotations

from pathlib import Path


def find_beside(model: Path, name: str, root: Path | None) -> Path | None:
    """An ordinary file below the model's folder, by its real path; `root` is a folder around both, where links lead out. None:
    it is missing. Raises ValueError for what leads out, or is not an ordinary file."""
    folder = model.parent.resolve()
    allowed = folder if root is None else root.resolve()
    file = (folder / name).resolve()
    if not file.exists():
        return None
    if not file.is_relative_to(allowed):
        raise ValueError(f"{name} of {model} leads out of {allowed}, to {file}; root= allows a folder around both")
    if not file.is_file():
        raise ValueError(f"{name} of {model} is not an ordinary file")
    return file


def find_model(path: Path) -> Path:
    """Finds the ONNX model in a folder, or below it; takes a file as it is. Raises FileNotFoundError where there is none,
    and ValueError where there are several."""
    if not path.is_dir():
        return path
    found = sorted(path.rglob("*.onnx"))
    if not found:
        raise FileNotFoundError(f"{path} has no file called .onnx")
    if len(found) > 1:
        names = ", ".join(str(file.relative_to(path)) for file in found)
        raise ValueError(f"{path} has several models, name one: {names}")
    return found[0]
