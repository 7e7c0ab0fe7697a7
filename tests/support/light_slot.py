"""The actor of a real sweep whose trials only pretend to train, in real processes."""

import os
from typing import Any

from orchestrator.running.cluster.slot_actor import SlotTrainable
from tests.support import light_parent


class LightSlotTrainable(SlotTrainable):
    def setup(self, config: dict[str, Any]) -> None:
        os.environ.update(light_parent.variables())
        super().setup(config)
