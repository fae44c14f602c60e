"""What the source tells is not believed: no file is written beside the slot that a copy has."""

from __future__ import annotations

from pathlib import Path

import pytest

from transfer import receive
from transfer.staging_dir import RefusedError, StagingSlot


@pytest.mark.parametrize(
    "name", ["../../../.ssh/authorized_keys", "/etc/cron.d/x", "a/../../../x", "", "x\0y"]
)
def test_a_name_that_leads_out_of_the_checkpoint_is_refused_before_anything_is_made(
    tmp_path: Path, name: str
) -> None:
    slot = StagingSlot(str(tmp_path / "staged"), "drafter-step1-0")
    files = [{"name": "model.safetensors", "size": 1}, {"name": name, "size": 1}]
    with pytest.raises(RefusedError, match="is not a valid file name in a checkpoint"):
        receive.ready(slot, {"files": files, "format": "sharded"})
    assert not (tmp_path / "staged").exists()


def test_a_file_in_a_folder_of_the_checkpoint_is_none_of_those(tmp_path: Path) -> None:
    slot = StagingSlot(str(tmp_path), "drafter-step1-0")
    receive.ready(slot, {"files": [{"name": "deeper/..x..", "size": 1}], "format": "sharded"})
    assert Path(slot.partial).is_dir()
