"""Number formats of training, and the step that goes with each."""

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum

import torch
from torch import Tensor, nn


class Precision(StrEnum):
    """Formats that a forward pass may use; weights stay float32."""

    FP32 = "fp32"
    AMP_BF16 = "amp_bf16"
    AMP_FP16 = "amp_fp16"
    """With loss scaling (Micikevicius and others, 2018, arXiv:1710.03740)."""


class Stepper:
    """Forward contexts, backward passes and optimizer steps of one precision."""

    def __init__(
        self,
        precision: Precision,
        device: torch.device,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        clip_norm: float,
    ) -> None:
        self._precision, self._device = precision, device
        self._model, self._optimizer, self._clip_norm = model, optimizer, clip_norm
        self.scaler = torch.amp.GradScaler(device.type) if precision is Precision.AMP_FP16 else None

    def forward(self) -> AbstractContextManager[object]:
        """The context in which outputs and losses are computed."""
        if self._precision is Precision.FP32:
            return nullcontext()
        dtype = torch.bfloat16 if self._precision is Precision.AMP_BF16 else torch.float16
        return torch.autocast(self._device.type, dtype=dtype)

    def step(self, loss: Tensor) -> bool:
        """Backward pass and optimizer step; False when loss scaling skipped the step."""
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            self._clip()
            self._optimizer.step()
            return True
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self._clip_norm > 0:
            self.scaler.unscale_(self._optimizer)
            self._clip()
        before = self.scaler.get_scale()
        self.scaler.step(self._optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= before

    def _clip(self) -> None:
        if self._clip_norm > 0:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
