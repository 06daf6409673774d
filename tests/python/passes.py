"""Every pass and preset that the service has: a new one is proved without anybody naming it."""

PARAMETERS = {  # of those that need some, or do more with them
    "FuseAttention": [{}, {"masked_rows": True}],
    "RemoveNoOps": [{}, {"asserts": True, "float_zeros": True}],
    "ReplaceActivation": [{"from": "relu", "to": "gelu"}, {"from": "gelu", "to": "silu", "parameters": {}}],
    "QuantizeWeights": [{}, {"keep": ["linear"]}, {"bits": 4, "group_size": 32}, {"form": "packed"},
                        {"bits": 4, "group_size": 32, "form": "packed"}],
    "ConvertPrecision": [{"to": "bfloat16"}, {"to": "float16", "keep": ["softmax"]}],
}


def are_preserving(outcomes):
    """What a run's passes say: does its result compute the same?"""
    return all(outcome["exactness"] != "changes" for outcome in outcomes if outcome["applied"])


class Passes:
    """`each`: as items of a list of passes. Those of `preserving` compute the same."""

    def __init__(self, service):
        answer = service.get("/v1/passes").json()
        exactness = {item["name"]: item["exactness"] for item in answer["items"]}
        self.presets = [item["name"] for item in answer["presets"]]
        self.each = [
            {"name": name, "params": params} if params else name
            for name in exactness
            for params in PARAMETERS.get(name, [{}])
        ]
        changing = [name for name in exactness if exactness[name] == "changes"]
        self.preserving = [item for item in self.each if isinstance(item, str) or item["name"] not in changing]
