"""Experts axis: how transformers computes the experts of a mixture-of-experts model."""

from jobs.techniques.variant import Axis, Variant, add


def _experts(name: str, doc: str, requires: tuple[str, ...] = ()) -> Variant:
    return Variant(
        doc=doc,
        model_kwargs={"experts_implementation": name},
        requires=("experts", *requires),
        numerical_effect="rounding",
    )


EXPERTS = Axis(
    name="experts",
    doc="Which implementation computes the experts of a mixture-of-experts model",
    default="auto",
    variants={
        "auto": Variant(doc="The library's own choice: grouped_mm where it can run"),
        "eager": _experts("eager", "One expert after the other, over the tokens routed to it"),
        "batched_mm": _experts(
            "batched_mm",
            "One batched product, with a copy of an expert's weights for each token: fast for few "
            "tokens, and needs the most memory",
        ),
        "grouped_mm": _experts(
            "grouped_mm", "One grouped product over the tokens sorted by their expert"
        ),
        "deepgemm": _experts(
            "deepgemm",
            "DeepGEMM's grouped products for Hopper GPUs, from the Hub",
            ("package:kernels", "capability>=9.0"),
        ),
        "sonicmoe": _experts(
            "sonicmoe",
            "SonicMoE's fused kernels for Hopper GPUs, from the Hub",
            ("package:kernels", "capability>=9.0"),
        ),
    },
)
add(EXPERTS)
