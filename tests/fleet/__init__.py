"""The real fleet: namespaces, sshd and LXC containers, raised on this machine for tests."""
