"""Mirrors the aliases of a model between foldback and the model registry of MLflow 3, both ways.

    import foldback, mlflow
    from foldback.mlflow import Mirror

    mirror = Mirror(foldback.Client("http://127.0.0.1:8080"), mlflow.MlflowClient("http://127.0.0.1:5000"), "bert")
    mirror.sync()

`sync` looks at both sides and brings them together; call it again and again, or run `foldback mlflow sync bert --every 10`.
Whoever has moved an alias since the last time is followed by the other side. A version that foldback makes, by a rollback of
passes too, becomes a version of MLflow's, with the graph's id among its tags. A version of MLflow's with the tag
`foldback.graph`, the id of a graph that foldback has, becomes one of foldback's; `register` makes such a version.

Where both sides have moved an alias to different versions, `prefer` says which one counts. What the last time came to is in
tags of the registered model, so that a mirror that was killed goes on where it was, from any machine. One mirror at a time for
a model: MLflow has no compare-and-swap.

With the package installed, `mlflow.pyfunc.load_model("models:/bert@champion")` loads what foldback deployed (artifacts.py).
"""

from .listener import Listener, NotSigned
from .mirror import Change, Mirror, register

__all__ = ["Change", "Listener", "Mirror", "NotSigned", "register"]
