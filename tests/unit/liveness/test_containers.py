"""Containers are named by the cgroup paths that LXC, Proxmox, docker, podman, Kubernetes and systemd give."""

from __future__ import annotations

import pytest

from hostkit.liveness.containers import container_name, is_in

ID = "3f4e8d2c9a1b" + "0" * 52


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        ("/lxc/200/ns/system.slice/train.service", "200"),
        ("/lxc.payload.trainer/init.scope", "trainer"),
        (f"/system.slice/docker-{ID}.scope", ID[:12]),
        (f"/docker/{ID}", ID[:12]),
        (f"/machine.slice/libpod-{ID}.scope/container", ID[:12]),
        (f"/kubepods.slice/kubepods-burstable.slice/cri-containerd-{ID}.scope", ID[:12]),
        ("/machine.slice/systemd-nspawn@trainer.service/payload", "trainer"),
        ("/machine.slice/machine-trainer.scope", "trainer"),
        ("/user.slice/user-0.slice/session-1.scope", None),
        ("/", None),
        (None, None),
    ],
)
def test_a_container_is_named_by_its_cgroup(cgroup: str | None, name: str | None) -> None:
    assert container_name(cgroup) == name
    assert is_in(cgroup, "any")
    assert not is_in(cgroup, "other")
    if name is not None:
        assert is_in(cgroup, name)


def test_an_id_may_be_given_in_full_and_a_path_s_part_by_itself() -> None:
    assert is_in(f"/docker/{ID}", ID)
    assert not is_in(f"/docker/{ID}", ID[:6])
    assert not is_in("/lxc/200/ns", "20")
    assert is_in("/custom/trainer/x", "trainer")
