#!/usr/bin/env bash
# Runs a command beside a Slurm of one node, which is this machine: `tools/machines/slurm.sh pytest tests/cli/test_slurm_node.py`.
# Root on Debian only. The daemons, their state and their logs go with the command; what they need is installed and stays.
set -euo pipefail

[ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] || { echo "A Slurm of one node is set up by root on Debian only." >&2; exit 1; }
for program in slurmctld slurmd munged sbatch; do
  command -v $program >/dev/null || missing=1
done
if [ -n "${missing:-}" ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge
fi

folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
stop() {
  scancel --full --state=RUNNING --state=PENDING --user=root 2>/dev/null || true
  for name in slurmd slurmctld munged; do
    [ -f "$folder/$name.pid" ] && kill "$(cat "$folder/$name.pid")" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap stop EXIT

chmod 755 "$folder"
[ -f /etc/munge/munge.key ] || mungekey
mkdir -p "$folder/munge"
chmod 755 "$folder/munge"
munged --force --socket="$folder/munge/socket" --pid-file="$folder/munged.pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --key-file=/etc/munge/munge.key

host=$(hostname -s)
cat > "$SLURM_CONF" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
MinJobAge=60
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=one Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END
echo "CgroupAutomount=no" > "$folder/cgroup.conf"
mkdir -p "$folder/state" "$folder/spool"
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
for _ in $(seq 60); do
  [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && break
  sleep 0.5
done
if [ "$(sinfo --noheader --format=%T 2>/dev/null)" != idle ]; then
  echo "Slurm did not start:" >&2
  tail -n 20 "$folder"/*.log "$folder/munge/log" >&2
  exit 1
fi
ONE_NODE_SLURM=1 "$@"
