# ---- 10-prepare: what every later step needs
#!/bin/bash
# what every later step needs
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

mkdir -p /etc/ranklift /usr/local/lib/ranklift /var/cache/ranklift
cat >/etc/apt/apt.conf.d/90-ranklift <<'END'
// Azure's own first boot may hold the lock for a while.
DPkg::Lock::Timeout "600";
Acquire::Retries "5";
END

cat >/usr/local/lib/ranklift/fetch <<'END'
#!/bin/bash
# fetch URL SHA256|unknown FILE: a download, once, and only with the digest that was pinned. Where none was
# pinned, what came is written to /var/cache/ranklift/SHA256SUMS.
set -euo pipefail
url=$1 pinned=$2 file=$3
if [ -r /etc/ranklift/mirror ]; then url=$(cat /etc/ranklift/mirror)/${url#https://}; fi
mkdir -p "$(dirname "$file")"
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
if [ -e "$file" ] && { [ "$pinned" = unknown ] || [ "$(digest "$file")" = "$pinned" ]; }; then exit 0; fi
curl --fail --silent --show-error --location --proto '=https,file' --retry 5 --retry-delay 5 \
    --output "$file.part" "$url"
got=$(digest "$file.part")
if [ "$pinned" != unknown ] && [ "$got" != "$pinned" ]; then
    rm -f "$file.part"
    echo "$url has the SHA-256 $got, but $pinned was pinned: it is not used" >&2
    exit 1
fi
mv "$file.part" "$file"
echo "$got  $url" >>/var/cache/ranklift/SHA256SUMS
END
chmod 0755 /usr/local/lib/ranklift/fetch

apt-get update
apt-get install -y bzip2 ca-certificates curl dkms environment-modules g++ make nfs-common pciutils

# ---- 20-kernel: this kernel stays, and nothing is upgraded by itself
#!/bin/bash
# this kernel stays, and nothing is upgraded by itself
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# The drivers are built for the kernel that runs now: another one at the next boot would be without them.
running=$(uname -r)
images=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' 'linux-image-[0-9]*' || true)
newest=$(sed -n 's/^installed linux-image-//p' <<<"$images" | sort --version-sort | tail -n 1)
if [ -n "$newest" ] && [ "$newest" != "$running" ]; then
    echo "The kernel $newest is installed and starts at the next boot, but $running runs:" \
        "reboot, or remove linux-image-$newest, and run this again" >&2
    exit 1
fi
apt-get install -y "linux-headers-$running"
# The packages that would bring another one have several names: linux-azure, linux-image-azure-lts-22.04, ...
mapfile -t held < <(
    dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' \
        'linux-azure*' 'linux-image-azure*' 'linux-headers-azure*' \
        "linux-image-$running" "linux-headers-$running" 2>/dev/null | sed -n 's/^installed //p'
)
case " ${held[*]} " in
*" linux-image-$running "*) apt-mark hold "${held[@]}" ;;
*)
    echo "The running kernel $running is of no installed package, so it cannot be pinned" >&2
    exit 1
    ;;
esac

cat >/etc/apt/apt.conf.d/99-ranklift-no-upgrades <<'END'
APT::Periodic::Enable "0";
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
END
for unit in unattended-upgrades.service apt-daily.timer apt-daily-upgrade.timer; do
    systemctl mask "$unit"
done

# ---- 30-ofed: DOCA-OFED 3.2.1
#!/bin/bash
# DOCA-OFED 3.2.1
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

package=/var/cache/ranklift/doca-host.deb
/usr/local/lib/ranklift/fetch https://www.mellanox.com/downloads/DOCA/DOCA_v3.2.1/host/doca-host_3.2.1-044000-25.10-ubuntu2404_amd64.deb unknown "$package"
dpkg -i "$package"
# Ubuntu's dkms, not the one that NVIDIA ships beside its drivers.
cat >/etc/apt/preferences.d/ranklift-doca <<'END'
Package: dkms
Pin: release l=DOCA-HOST*
Pin-Priority: -1
END
apt-get update
apt-get install -y doca-ofed

# openibd loads the drivers at boot, when udev may still be looking at the adapters.
mkdir -p /etc/systemd/system/openibd.service.d
cat >/etc/systemd/system/openibd.service.d/10-ranklift.conf <<'END'
[Unit]
After=systemd-udev-settle.service
Wants=systemd-udev-settle.service

[Service]
Restart=on-failure
RestartSec=5
END
systemctl enable openibd.service

# ---- 40-nvidia: NVIDIA driver 580.126.16 (nvidia-open)
#!/bin/bash
# NVIDIA driver 580.126.16 (nvidia-open)
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

keyring=/var/cache/ranklift/cuda-keyring.deb
/usr/local/lib/ranklift/fetch https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba "$keyring"
dpkg -i "$keyring"
apt-get update
# This package holds all of NVIDIA's to one version.
apt-get install -y nvidia-driver-pinning-580.126.16
apt-get install -y nvidia-open
apt-get install -y nvidia-fabricmanager
systemctl enable nvidia-fabricmanager.service
# Users may profile their own jobs.
echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' >/etc/modprobe.d/ranklift-nvidia.conf

# ---- 45-peermem: GPU memory for the adapters
#!/bin/bash
# GPU memory for the adapters
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# Its predecessor holds the same place.
echo 'blacklist nv_peer_mem' >/etc/modprobe.d/ranklift-peermem.conf
echo nvidia-peermem >/etc/modules-load.d/ranklift-peermem.conf
# Whoever restarts openibd takes the module away with it.
mkdir -p /etc/systemd/system/openibd.service.d
cat >/etc/systemd/system/openibd.service.d/20-ranklift-peermem.conf <<'END'
[Service]
ExecStartPost=-/sbin/modprobe nvidia-peermem
END

# ---- 50-cuda: CUDA 13.0 and NCCL 2.28.9-1+cuda13.0
#!/bin/bash
# CUDA 13.0 and NCCL 2.28.9-1+cuda13.0
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt-get install -y cuda-toolkit-13-0
apt-get install -y --allow-change-held-packages --allow-downgrades \
    libnccl2=2.28.9-1+cuda13.0 libnccl-dev=2.28.9-1+cuda13.0
apt-mark hold libnccl2 libnccl-dev
cat >/etc/profile.d/ranklift-cuda.sh <<'END'
export PATH="${PATH:+$PATH:}/usr/local/cuda/bin"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64"
END

# ---- 55-topology: NCCL's topology, ndv5
#!/bin/bash
# NCCL's topology, ndv5
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# A VM does not see how its GPUs and adapters are wired: without the file, NCCL takes what it sees for true.
file=/opt/microsoft/ndv5-topo.xml
/usr/local/lib/ranklift/fetch https://raw.githubusercontent.com/Azure/azhpc-images/d21d11e3e5001bd25f7cec26bee987dcd51b2066/topology/ndv5-topo.xml c26ff47f1decf03d44ee6e90c4a8afd3bddeec334c5545008f33af2a297e2834 "$file"
cat >/etc/nccl.conf <<END
NCCL_TOPO_FILE=$file
NCCL_IGNORE_CPU_AFFINITY=1
NCCL_IB_PCI_RELAXED_ORDERING=1
END

# ---- 60-mpi: hpcx-2.25.1
#!/bin/bash
# hpcx-2.25.1
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

home=/opt/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64
if [ ! -e "$home/.complete" ]; then
    archive=/var/cache/ranklift/hpcx.tbz
    /usr/local/lib/ranklift/fetch https://content.mellanox.com/hpc/hpc-x/v2.25.1_cuda13/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz unknown "$archive"
    rm -rf "$home"
    # As root, tar would leave the files to whoever has their maker's number here.
    tar -xjf "$archive" --no-same-owner -C /opt
    # Its pkg-config files name the folder in which it was built.
    find "$home" -name '*.pc' -exec sed -i 's|/build-result/|/opt/|g' {} +
    touch "$home/.complete"
fi
mkdir -p /usr/share/modules/modulefiles/mpi
cat >/usr/share/modules/modulefiles/mpi/hpcx-2.25.1 <<END
#%Module 1.0
conflict mpi
module load $home/modulefiles/hpcx
END
ln -sfn hpcx-2.25.1 /usr/share/modules/modulefiles/mpi/hpcx

# ---- 70-limits: limits and kernel settings
#!/bin/bash
# limits and kernel settings
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# InfiniBand pins the memory it transfers. Here and below: the values of Azure's HPC images.
cat >/etc/security/limits.d/90-ranklift.conf <<'END'
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
* soft stack unlimited
* hard stack unlimited
END
# Services too, and with them what is started over ssh by a service of the user.
mkdir -p /etc/systemd/system.conf.d
cat >/etc/systemd/system.conf.d/90-ranklift.conf <<'END'
[Manager]
DefaultLimitMEMLOCK=infinity
END
cat >/etc/sysctl.d/90-ranklift.conf <<'END'
vm.zone_reclaim_mode = 1
net.ipv4.neigh.default.gc_thresh1 = 4096
net.ipv4.neigh.default.gc_thresh2 = 8192
net.ipv4.neigh.default.gc_thresh3 = 16384
END
# The network's own rules say who reaches a node; ranks talk on any port.
if systemctl cat ufw.service >/dev/null 2>&1; then systemctl disable ufw.service; fi

# ---- 75-waagent: Azure's agent looks after InfiniBand
#!/bin/bash
# Azure's agent looks after InfiniBand
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# It gives the InfiniBand interfaces their addresses. Restarting it would end a first boot that runs under it:
# it reads its file anew at the next boot.
file=/etc/waagent.conf
[ -e "$file" ] || { echo "$file is missing: this is not an Azure machine" >&2; exit 1; }
sed -i -E '/^[#[:space:]]*OS\.EnableRDMA=/d' "$file"
echo 'OS.EnableRDMA=y' >>"$file"

# ---- 80-nvme: local NVMe disks as one
#!/bin/bash
# local NVMe disks as one
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt-get install -y mdadm xfsprogs
cat >/usr/local/lib/ranklift/nvme-raid <<'END'
#!/bin/bash
# The node's empty local NVMe disks as one striped file system at /mnt/resource_nvme. They are lost with the
# node, and come back empty after a redeployment: it is made anew then.
set -euo pipefail
array=/dev/md128 place=/mnt/resource_nvme label=rl-nvme

if mountpoint --quiet "$place"; then exit 0; fi
# What an earlier boot made, under whatever number it is assembled today.
udevadm settle || true
mdadm --assemble --scan --quiet || true
made=$(blkid -L "$label" || true)
if [ -n "$made" ]; then
    array=$made
else
    disks=()
    for disk in /dev/nvme*n1; do
        [ -b "$disk" ] || continue
        # No remote disk of Azure's, and none that holds anything.
        case $(lsblk --nodeps --noheadings --output MODEL "$disk") in *"MSFT NVMe Accelerator"*) continue ;; esac
        [ "$(lsblk --noheadings --output NAME "$disk" | wc -l)" = 1 ] || continue
        found=0
        blkid --probe "$disk" >/dev/null || found=$?
        [ "$found" = 2 ] || continue # 2: nothing is on it
        disks+=("$disk")
    done
    if [ "${#disks[@]}" = 0 ]; then
        echo "no empty local NVMe disk here: $place stays a plain folder"
        exit 0
    fi
    mdadm --create "$array" --run --level=0 --force --raid-devices="${#disks[@]}" "${disks[@]}"
    mkfs.xfs -q -L "$label" "$array"
fi
mkdir -p "$place"
mount -o noatime "$array" "$place"
chmod 1777 "$place"
END
chmod 0755 /usr/local/lib/ranklift/nvme-raid
cat >/etc/systemd/system/ranklift-nvme.service <<'END'
[Unit]
Description=The node's local NVMe disks as one, at /mnt/resource_nvme
# Where cloud-init has the temporary disk at /mnt, it comes first: it would lie over this.
After=local-fs.target mnt.mount systemd-udev-settle.service
Wants=systemd-udev-settle.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/ranklift/nvme-raid

[Install]
WantedBy=multi-user.target
END
systemctl enable ranklift-nvme.service

# ---- 90-record: what this machine holds
#!/bin/bash
# what this machine holds
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

cat >/etc/ranklift/recipe.json <<'END'
{
  "cpu_arch": "x64",
  "cuda": "13.0",
  "driver": "580.126.16",
  "driver_package": "nvidia-open",
  "fabric_manager": true,
  "gpu": "H100",
  "keyring": {
    "sha256": "d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba",
    "url": "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb",
    "version": "1.1-1"
  },
  "mpi": "hpcx",
  "mpi_file": {
    "sha256": null,
    "url": "https://content.mellanox.com/hpc/hpc-x/v2.25.1_cuda13/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64.tbz",
    "version": "2.25.1"
  },
  "nccl": "2.28.9-1+cuda13.0",
  "nvme": true,
  "ofed": "doca",
  "ofed_file": {
    "sha256": null,
    "url": "https://www.mellanox.com/downloads/DOCA/DOCA_v3.2.1/host/doca-host_3.2.1-044000-25.10-ubuntu2404_amd64.deb",
    "version": "3.2.1"
  },
  "size": "Standard_ND96isr_H100_v5",
  "topology": {
    "sha256": "c26ff47f1decf03d44ee6e90c4a8afd3bddeec334c5545008f33af2a297e2834",
    "url": "https://raw.githubusercontent.com/Azure/azhpc-images/d21d11e3e5001bd25f7cec26bee987dcd51b2066/topology/ndv5-topo.xml",
    "version": "unversioned"
  },
  "topology_name": "ndv5",
  "ubuntu": "24.04"
}
END
apt-get clean
# Digests stay, the files have served their purpose.
find /var/cache/ranklift -mindepth 1 ! -name SHA256SUMS -delete

