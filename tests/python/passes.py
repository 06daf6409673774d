"""Every pass and preset that the service has: a new one is proved without anybody naming it."""

PARAMETERS = {  # of those that need some, or do more with them
    "RemoveNoOps": [{}, {"asserts": True, "float_zeros": True}],
    "ReplaceActivation": [{"from": "relu", "to": "gelu"}, {"from": "gelu", "to": "silu", "parameters": {}}],
    "ConvertPrecision": [{"to": "bfloat16"}, {"to": "float16", "keep": ["softmax"]}],
}


class Passes:
    """`each`: as items of a list of passes. Those of `preserving` compute the same."""

    def __init__(self, service):
        answer = service.get("/v1/passes").json()
        self.described = {item["name"]: item for item in answer["items"]}
        self.presets = [item["name"] for item in answer["presets"]]
        self.each = [
            {"name": name, "params": params} if params else name
            for name in self.described
            for params in PARAMETERS.get(name, [{}])
        ]
        self.preserving = [item for item in self.each if self.preserves(item)]

    def preserves(self, item):
        name = item if isinstance(item, str) else item["name"]
        return self.described[name]["preserves_computation"]

    def preserved(self, outcomes):
        """Of what a run's passes say."""
        return all(self.preserves(outcome["name"]) for outcome in outcomes if outcome["applied"])
