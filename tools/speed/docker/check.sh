#!/usr/bin/env bash
# Executes the RUN lines of the Dockerfile beside it, in their order, with nothing of this shell's environment; its folders
# lie in a temporary one. Lines that install packages of the system run as root on Debian and its like only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/home"
cp -r "$here/../../.." "$root/src"
while IFS= read -r line; do
  command=${line#RUN }
  command=${command//\/opt\//$root/opt/}
  command=${command//\/src/$root/src}
  if [[ $command == apt-get* ]]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
      echo "left out: $command"
      continue
    fi
    command=${command% && rm -rf /var/lib/apt/lists/\*} # they are this machine's
  fi
  echo "+ $command"
  env -i HOME="$root/home" PATH="$root/opt/pflbench/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 bash -euc "$command"
done < <(grep '^RUN ' "$here/Dockerfile")
