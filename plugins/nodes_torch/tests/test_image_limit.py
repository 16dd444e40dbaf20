"""The largest picture that is decoded."""

from pathlib import Path

import pytest
from PIL import Image

from codefyui_nodes_torch.io.image_reader import read_image


def test_a_picture_over_the_limit_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    monkeypatch.setenv("CODEFYUI_MAX_IMAGE_PIXELS", "599")
    with pytest.raises(ValueError, match="CODEFYUI_MAX_IMAGE_PIXELS"):
        read_image(tmp_path / "a.png", "RGB")
    monkeypatch.setenv("CODEFYUI_MAX_IMAGE_PIXELS", "600")
    assert read_image(tmp_path / "a.png", "RGB").shape == (3, 20, 30)
