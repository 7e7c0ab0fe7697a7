"""The batches of rows and of pairs that TRL prepares, as its own collators pad or join them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jobs.loops.contract import Setup
from jobs.loops.meter import Listener
from jobs.spec import TrialSpec
from jobs.techniques.hooks import bound, hook_name
from jobs.trial import models
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.row_lengths import RowLengths, arrow_lists
from orchestrator.prediction.tracing.rows.batches import BatchShapes, FileBatches, Shape


class TrlBatches(FileBatches):
    """TRL computes its loss from the positions with a label alone. So rows that are made to a shape
    have the usual share of them."""

    def __init__(self, spec: TrialSpec) -> None:
        from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE

        prepare: Any = bound(spec, "rows") or bound(spec, "preferences")
        rows, self._prepared = prepare(
            spec.data,
            models.architecture_config(spec.model),
            samples=None,
            seed=spec.measure.seed,
            batching=hook_name(spec, "batching"),
        )
        super().__init__(rows, self._prepared)
        positions, scored = _positions_of_rows(rows)
        self._scored_share = float(scored.sum() / positions.sum())
        synthetic = spec.data.synthetic
        self._repeats = synthetic is not None
        if synthetic is not None and synthetic.lengths is None:
            # They are padded to one length.
            self.lengths = self.ragged = None
        if self.lengths is not None:
            # Both answers of a pair are padded to the longest of the batch.
            self.lengths = RowLengths(
                by_column={"tokens": self.lengths.tokens},
                labels=scored,
                tile=TOKEN_CHUNK_SIZE,
            )

    def follow(self, make: Any, model: Any, arguments: Any) -> Any:
        """TRL's Trainer, as ``make`` makes it of these rows, which are then batched as it does."""
        trainer = make(
            Setup(
                model=model,
                dataset=self._rows,
                collator=self._prepared,
                arguments=arguments,
                optimizer=None,
                meter=Listener(),
            )
        )
        self._rows, self.collate = trainer.train_dataset, trainer.data_collator
        self.collate.flattens_rows = self.joins_rows  # type: ignore[attr-defined]
        return trainer

    def worst(self, samples: int) -> BatchShapes:
        if self.lengths is None and self.ragged is None and self._repeats:
            return self._batch([own % len(self._rows) for own in range(samples)])
        return super().worst(samples)

    def _resized(self, position: int, shape: Shape) -> dict[str, Any]:
        length = self._length(shape, position)
        row = dict(self._rows[0])
        answers = 2 if "prompt_ids" in row else 1
        labels = round(answers * self._scored_share * length)
        if shape.tiles:
            labels = (shape.lengths[-1] + position) // shape.rows
        labels = max(1, min(labels, answers * (length - 1)))
        token = [1]
        if answers > 1:
            # Seldom are both answers equally long, and a batch without padding has no mask.
            chosen = min(labels // 2 + 1, length - 1)
            row["prompt_ids"] = token * (length - chosen)
            row["chosen_ids"], row["rejected_ids"] = token * chosen, token * max(1, labels - chosen)
            return row
        row["input_ids"] = token * length
        row["labels"] = [IGNORED] * (length - labels) + token * labels
        if "seq_lengths" in row:
            parts = len(row["seq_lengths"])
            row["seq_lengths"] = [(length + own) // parts for own in range(parts)]
        return row


def _positions_of_rows(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions of each row, and those whose token is predicted and has a label, int64 (rows,)."""
    if "labels" not in rows.column_names:
        prompts, *answers = (
            np.concatenate([lengths for lengths, _ in arrow_lists(rows, f"{name}_ids")])
            for name in ("prompt", "chosen", "rejected")
        )
        scored = np.sum(answers, axis=0)
        return 2 * prompts + scored, scored
    lengths, labels = map(np.concatenate, zip(*arrow_lists(rows, "labels"), strict=True))
    has_label = labels != IGNORED
    # A block has several texts, and the first token of each is not predicted.
    parts = list(arrow_lists(rows, "seq_lengths")) if "seq_lengths" in rows.column_names else []
    texts = np.concatenate([own for _, own in parts]) if parts else lengths
    has_label[np.cumsum(texts) - texts] = False
    return lengths, np.add.reduceat(has_label, np.cumsum(lengths) - lengths, dtype=np.int64)
