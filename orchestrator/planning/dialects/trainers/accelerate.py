"""accelerate's configuration, which says only a part of a training."""

from collections.abc import Mapping

from orchestrator.planning.dialects.trainers import training_arguments as hf
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

_DEVICES = {"cpu": "cpu", "nvme": "nvme"}
ROWS: Mapping[str, Rule] = {
    "mixed_precision": Rule(
        values={"bf16": {"bf16": True}, "fp16": {"fp16": True}, "fp8": {"fp8": True}, "no": {}}
    ),
    "gradient_accumulation_steps": as_is("accumulation"),
    "distributed_type": aside(hf.ONE_GPU),
    "deepspeed_config.deepspeed_config_file": as_is("deepspeed"),
    "deepspeed_config.gradient_accumulation_steps": as_is("accumulation"),
    "deepspeed_config.zero_stage": as_is("zero.stage"),
    "deepspeed_config.offload_optimizer_device": one_of("zero.optimizer", _DEVICES),
    "deepspeed_config.offload_param_device": one_of("zero.parameters", _DEVICES),
    "fsdp_config.fsdp_offload_params": hf.FSDP_OFFLOAD,
    "fsdp_config.fsdp_activation_checkpointing": Rule(values={"true": {"checkpointing": True}}),
    "fsdp_config.*": aside(hf.ONE_GPU),
    "dynamo_config.dynamo_backend": one_of("compile", {"inductor": True, "no": False}),
    "dynamo_config.dynamo_mode": as_is("compile.mode"),
    "tpu_*": impossible("a trial runs on a GPU"),
    "*": aside(hf.ONE_GPU),
}
