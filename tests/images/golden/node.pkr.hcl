# Node image for Standard_ND40rs_v2: Ubuntu 22.04, DOCA-OFED 3.2.1, driver 580.126.16, CUDA 12.9, hpcx-2.18

packer {
  required_version = ">= 1.14.0"
  required_plugins {
    azure = {
      source  = "github.com/hashicorp/azure"
      version = "= 2.6.1"
    }
  }
}

variable "subscription_id" {
  type = string
}

variable "location" {
  type = string
}

variable "base_version" {
  type        = string
  description = "Version of Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2; latest would make every image another one"
  validation {
    condition     = var.base_version != "latest"
    error_message = "Pin a version that az vm image list --publisher Canonical --offer 0001-com-ubuntu-server-jammy --sku 22_04-lts-gen2 --all lists."
  }
}

variable "build_size" {
  type        = string
  default     = "Standard_D8s_v5"
  description = "Builds the image; it need not have the hardware of the nodes"
}

variable "resource_group" {
  type        = string
  description = "Of the gallery"
}

variable "gallery" {
  type = string
}

variable "image" {
  type = string
}

variable "image_version" {
  type = string
}

source "azure-arm" "node" {
  use_azure_cli_auth = true
  subscription_id    = var.subscription_id
  location           = var.location
  os_type            = "Linux"
  image_publisher    = "Canonical"
  image_offer        = "0001-com-ubuntu-server-jammy"
  image_sku          = "22_04-lts-gen2"
  image_version      = var.base_version
  vm_size            = var.build_size
  os_disk_size_gb    = 128

  shared_image_gallery_destination {
    subscription         = var.subscription_id
    resource_group       = var.resource_group
    gallery_name         = var.gallery
    image_name           = var.image
    image_version        = var.image_version
    storage_account_type = "Standard_LRS"
    target_region {
      name = var.location
    }
  }
}

build {
  sources = ["source.azure-arm.node"]

  provisioner "shell" {
    execute_command = "sudo bash '{{ .Path }}' </dev/null"
    scripts = [
      "steps/10-prepare.sh",
      "steps/20-kernel.sh",
      "steps/30-ofed.sh",
      "steps/40-nvidia.sh",
      "steps/45-peermem.sh",
      "steps/50-cuda.sh",
      "steps/55-topology.sh",
      "steps/60-mpi.sh",
      "steps/70-limits.sh",
      "steps/75-waagent.sh",
      "steps/90-record.sh",
    ]
  }

  # Nothing of this machine's own stays: keys, accounts, leases.
  provisioner "shell" {
    execute_command = "sudo sh '{{ .Path }}'"
    inline          = ["waagent -force -deprovision+user && sync"]
    skip_clean      = true
  }
}
