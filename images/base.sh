#!/usr/bin/env bash
# Make a base image of nodes and agents from Debian's packages, for where no image registry can be reached:
#
#     images/base.sh [amd64|arm64]        (makes edgebed-base:amd64 or edgebed-base:arm64)
#
# Needs mmdebstrap, and for another architecture than this machine's qemu-user-static and binfmt-support.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin  # where Debian has chroot, and the PATH of an ordinary user has not
architecture=${1:-$(dpkg --print-architecture)}
context=$(mktemp --directory)
trap 'rm -rf "$context"' EXIT
mmdebstrap --quiet --variant=minbase --architectures="$architecture" --include=python3,python3-venv,iproute2 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$context/base.tar"
# Not docker import, which takes every archive to be of the engine's own architecture.
printf 'FROM scratch\nADD base.tar /\n' > "$context/Dockerfile"
docker build --quiet --platform "linux/$architecture" --tag "edgebed-base:$architecture" "$context"
