"""docs/optimum.md: its samples run, in order, in one program."""

import pathlib
import re
import subprocess
import sys

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "optimum.md"


def test_the_samples_of_the_guide(tmp_path):
    samples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(samples) == 7
    program = tmp_path / "program.py"  # in a file: torch.fx reads the source
    program.write_text("\n".join(samples) + "print('all of it ran')\n")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning:foldback", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("all of it ran\n"), done.stderr
