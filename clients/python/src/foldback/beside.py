"""The files beside an ONNX model, by the names that its tensors have for them."""

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
