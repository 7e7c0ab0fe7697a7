"""The tokens and tensors that an image becomes in a batch, for each vision-language family.

This table computes what the processor of a family would make, from the model's configuration alone.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Read = Callable[[str], Any]
"""The value of a dotted key of a model's configuration; None if it is not known."""


class ImageLayoutError(ValueError):
    """No image can be laid out for the model. The message is one sentence that says why."""


class UnknownValueError(ImageLayoutError, LookupError):
    """The reader of the configuration does not know a value. A built configuration may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageLayout:
    """One image among the tokens and the tensors of a sample."""

    pieces: tuple[tuple[int, int], ...]
    """Pairs: tokens of text, then tokens of the image. Several pairs: text divides the image."""
    text_after: int  # tokens of text that close the image
    pixel_values: tuple[int, ...]  # shape of the image's pixels, 32-bit floats
    is_stacked: bool = False  # whether the batch has a dimension for samples
    masks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Name -> shape of a mask of ones that comes with the pixels."""
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Name -> integers about the image, such as its rows and columns of patches."""

    @property
    def image_tokens(self) -> int:
        """Tokens that the image's features replace."""
        return sum(image for _, image in self.pieces)

    @property
    def tokens(self) -> int:
        """All tokens that the image takes, with the text that belongs to it."""
        return self.text_after + sum(text + image for text, image in self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFamily:
    """How the models of one ``model_type`` get their images."""

    layout: Callable[[Read, int | None], ImageLayout]
    """Configuration, and the side of a square image in pixels (None: the family's own)."""
    type_ids: Literal["", "mm_token_type_ids", "token_type_ids"] = ""
    """The input that marks tokens by their kind, if the model takes one."""
    marks_answers: bool = False
    """Whether that input is 1 for the text to learn, instead of for the tokens of images."""


def layout_of(model_type: str, read: Read, side: int | None) -> ImageLayout:
    """The layout of one square image of ``side`` pixels; None: of the family's own size. Raises
    ImageLayoutError if the family is not in the table, or if it takes no such image, and
    UnknownValueError if ``read`` does not know a size of the model."""
    try:
        return family_of(model_type).layout(read, side)
    except ImageLayoutError as error:
        raise type(error)(f"{model_type} {error}") from None


def family_of(model_type: str) -> ImageFamily:
    """The row of a model type. Raises ImageLayoutError if the table has none."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    raise ImageLayoutError(
        f"random images cannot be made for {model_type}, because its configuration does not say "
        f"how many tokens an image gets; the known families are {', '.join(FAMILIES)}, and "
        "data.file with a processor trains any family"
    )


def _of_patches(read: Read, side: int | None) -> ImageLayout:
    """Flat patches with the rows and columns of each image: Qwen-VL and GLM-V."""
    wanted = _required_side(side)
    patch = _number(read, "vision_config.patch_size")
    merged = _number(read, "vision_config.spatial_merge_size")
    frames = _number(read, "vision_config.temporal_patch_size")
    channels = _number(read, "vision_config.in_channels")
    # As their processors' smart_resize: a whole number of merged patches, the nearest one.
    factor = patch * merged
    patches = max(1, round(wanted / factor)) * merged
    return ImageLayout(
        # One token before and one after, such as <|vision_start|> and <|vision_end|>.
        pieces=((1, (patches // merged) ** 2),),
        text_after=1,
        pixel_values=(patches**2, channels * frames * patch**2),
        sizes={"image_grid_thw": (1, patches, patches)},
    )


def _of_rows(read: Read, side: int | None) -> ImageLayout:
    """Whole images with their sizes, and a token that ends each row of patches: Mistral 3."""
    wanted = _required_side(side)
    factor = _number(read, "vision_config.patch_size") * _number(read, "spatial_merge_size")
    largest = _number(read, "vision_config.image_size")
    if wanted > largest:
        raise ImageLayoutError(f"has images of at most {largest} pixels a side, not {side}")
    # As PixtralImageProcessor: the next whole number of merged patches.
    rows = math.ceil(wanted / factor)
    pixels = rows * factor
    return ImageLayout(
        pieces=((0, rows), *[(1, rows)] * (rows - 1)),
        text_after=1,
        pixel_values=(1, _channels(read), pixels, pixels),
        sizes={"image_sizes": (pixels, pixels)},
    )


def _of_tiles(read: Read, side: int | None) -> ImageLayout:
    """Tiles of one size, and the whole image once more: Idefics 3 and SmolVLM."""
    tile = _number(read, "vision_config.image_size")
    patch = _number(read, "vision_config.patch_size")
    scale = _number(read, "scale_factor")
    tokens = (tile // patch) ** 2 // scale**2
    rows = math.ceil((side or tile) / tile)
    # Idefics3Processor.replace_image_token: two tokens name a tile, and a line break ends a row.
    pieces = [(2, tokens)]
    if rows > 1:
        row = [(2, tokens)] * rows
        later_row = [(3, tokens), *row[1:]]
        pieces = [*row, *later_row * (rows - 1), (3, tokens)]
    shape = (len(pieces), _channels(read), tile, tile)
    return ImageLayout(
        pieces=tuple(pieces),
        text_after=1,
        pixel_values=shape,
        is_stacked=True,
        masks={"pixel_attention_mask": (len(pieces), tile, tile)},
    )


def _of_one_size(
    tokens: Callable[[Read], int], text_around: int, read: Read, side: int | None
) -> ImageLayout:
    pixels = _number(read, "vision_config.image_size")
    own = tokens(read)
    if side not in (None, pixels):
        raise ImageLayoutError(
            f"has images of {pixels} pixels a side, not {side}: leave out "
            "data.synthetic.image_size, or change model.config.vision_config.image_size"
        )
    return ImageLayout(
        pieces=((text_around, own),),
        text_after=text_around,
        pixel_values=(1, _channels(read), pixels, pixels),
    )


def _patches(read: Read) -> int:
    side = _number(read, "vision_config.image_size")
    return (side // _number(read, "vision_config.patch_size")) ** 2


def _llava_tokens(read: Read) -> int:
    # LlavaModel.get_image_features: "default" leaves the first position out, which CLIP's class
    # token has. SigLIP has none.
    tower = read("vision_config.model_type") or "clip_vision_model"
    if tower not in ("clip_vision_model", "siglip_vision_model"):
        raise ImageLayoutError(f"has a vision tower of {tower}, whose images are not known")
    left_out = int(read("vision_feature_select_strategy") != "full")
    return _patches(read) + int(tower == "clip_vision_model") - left_out


def _internvl_tokens(read: Read) -> int:
    ratio = read("downsample_ratio")
    if ratio is None:
        raise UnknownValueError("has an unknown downsample_ratio")
    # InternVLModel.pixel_shuffle makes one token of several patches in both directions.
    return int(_patches(read) * ratio**2)


def _required_side(side: int | None) -> int:
    if side is None:
        raise ImageLayoutError("takes images of any size: set data.synthetic.image_size")
    return side


def _number(read: Read, key: str) -> int:
    value = read(key)
    if isinstance(value, (list, tuple)) and len(set(value)) == 1:
        value = value[0]  # of a pair of equal sizes
    if value is None:
        raise UnknownValueError(f"has an unknown {key}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ImageLayoutError(f"has {value!r} as {key}, where one whole number is needed")
    return value


def _channels(read: Read) -> int:
    return int(read("vision_config.num_channels") or 3)


_gemma_tokens = functools.partial(_number, key="mm_tokens_per_image")
FAMILIES: Mapping[str, ImageFamily] = {
    **dict.fromkeys(
        (
            *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"),
            *("glm4v", "glm4v_moe", "glm46v"),
        ),
        ImageFamily(layout=_of_patches, type_ids="mm_token_type_ids"),
    ),
    "llava": ImageFamily(layout=functools.partial(_of_one_size, _llava_tokens, 0)),
    "vipllava": ImageFamily(layout=functools.partial(_of_one_size, _patches, 0)),
    "paligemma": ImageFamily(
        layout=functools.partial(_of_one_size, _patches, 0),
        type_ids="token_type_ids",
        marks_answers=True,
    ),
    "gemma3": ImageFamily(
        layout=functools.partial(_of_one_size, _gemma_tokens, 2), type_ids="token_type_ids"
    ),
    "internvl": ImageFamily(layout=functools.partial(_of_one_size, _internvl_tokens, 1)),
    **dict.fromkeys(("idefics3", "smolvlm"), ImageFamily(layout=_of_tiles)),
    "mistral3": ImageFamily(layout=_of_rows),
}
"""``model_type`` -> how it gets images. Checked against the processors of transformers."""
