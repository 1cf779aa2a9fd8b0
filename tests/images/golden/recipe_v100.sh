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
/usr/local/lib/ranklift/fetch https://www.mellanox.com/downloads/DOCA/DOCA_v3.2.1/host/doca-host_3.2.1-044000-25.10-ubuntu2204_amd64.deb unknown "$package"
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

# ---- 40-nvidia: NVIDIA driver 580.126.16 (cuda-drivers)
#!/bin/bash
# NVIDIA driver 580.126.16 (cuda-drivers)
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

keyring=/var/cache/ranklift/cuda-keyring.deb
/usr/local/lib/ranklift/fetch https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df "$keyring"
dpkg -i "$keyring"
apt-get update
# This package holds all of NVIDIA's to one version.
apt-get install -y nvidia-driver-pinning-580.126.16
apt-get install -y cuda-drivers
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

# ---- 50-cuda: CUDA 12.9 and NCCL 2.28.9-1+cuda12.9
#!/bin/bash
# CUDA 12.9 and NCCL 2.28.9-1+cuda12.9
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt-get install -y cuda-toolkit-12-9
apt-get install -y --allow-change-held-packages --allow-downgrades \
    libnccl2=2.28.9-1+cuda12.9 libnccl-dev=2.28.9-1+cuda12.9
apt-mark hold libnccl2 libnccl-dev
cat >/etc/profile.d/ranklift-cuda.sh <<'END'
export PATH="${PATH:+$PATH:}/usr/local/cuda/bin"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64"
END

# ---- 55-topology: NCCL's topology, ndv2
#!/bin/bash
# NCCL's topology, ndv2
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# A VM does not see how its GPUs and adapters are wired: without the file, NCCL takes what it sees for true.
file=/opt/microsoft/ndv2-topo.xml
/usr/local/lib/ranklift/fetch https://raw.githubusercontent.com/Azure/azhpc-images/095aeec21ead6dfdcd2fb0524456ee8d0eb13e1a/topology/ndv2-topo.xml 996e81e764c1d42291c38d21a3ae8f74381aa67714ec80b3dcbb776ff40ce16a "$file"
cat >/etc/nccl.conf <<END
NCCL_TOPO_FILE=$file
NCCL_IGNORE_CPU_AFFINITY=1
END

# ---- 60-mpi: hpcx-2.18
#!/bin/bash
# hpcx-2.18
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

home=/opt/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64
if [ ! -e "$home/.complete" ]; then
    archive=/var/cache/ranklift/hpcx.tbz
    /usr/local/lib/ranklift/fetch https://content.mellanox.com/hpc/hpc-x/v2.18/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64.tbz 1258c060d56a2b650dc697ce91a746976ab9f198e4d46cdba2a5315315214147 "$archive"
    rm -rf "$home"
    # As root, tar would leave the files to whoever has their maker's number here.
    tar -xjf "$archive" --no-same-owner -C /opt
    # Its pkg-config files name the folder in which it was built.
    find "$home" -name '*.pc' -exec sed -i 's|/build-result/|/opt/|g' {} +
    touch "$home/.complete"
fi
mkdir -p /usr/share/modules/modulefiles/mpi
cat >/usr/share/modules/modulefiles/mpi/hpcx-2.18 <<END
#%Module 1.0
conflict mpi
module load $home/modulefiles/hpcx
END
ln -sfn hpcx-2.18 /usr/share/modules/modulefiles/mpi/hpcx

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

# ---- 90-record: what this machine holds
#!/bin/bash
# what this machine holds
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

cat >/etc/ranklift/recipe.json <<'END'
{
  "cpu_arch": "x64",
  "cuda": "12.9",
  "driver": "580.126.16",
  "driver_package": "cuda-drivers",
  "gpu": "V100",
  "keyring": {
    "sha256": "d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df",
    "url": "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb",
    "version": "1.1-1"
  },
  "mpi": "hpcx",
  "mpi_file": {
    "sha256": "1258c060d56a2b650dc697ce91a746976ab9f198e4d46cdba2a5315315214147",
    "url": "https://content.mellanox.com/hpc/hpc-x/v2.18/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64.tbz",
    "version": "2.18"
  },
  "nccl": "2.28.9-1+cuda12.9",
  "ofed": "doca",
  "ofed_file": {
    "sha256": null,
    "url": "https://www.mellanox.com/downloads/DOCA/DOCA_v3.2.1/host/doca-host_3.2.1-044000-25.10-ubuntu2204_amd64.deb",
    "version": "3.2.1"
  },
  "size": "Standard_ND40rs_v2",
  "topology": {
    "sha256": "996e81e764c1d42291c38d21a3ae8f74381aa67714ec80b3dcbb776ff40ce16a",
    "url": "https://raw.githubusercontent.com/Azure/azhpc-images/095aeec21ead6dfdcd2fb0524456ee8d0eb13e1a/topology/ndv2-topo.xml",
    "version": "unversioned"
  },
  "topology_name": "ndv2",
  "ubuntu": "22.04"
}
END
apt-get clean
# Digests stay, the files have served their purpose.
find /var/cache/ranklift -mindepth 1 ! -name SHA256SUMS -delete

