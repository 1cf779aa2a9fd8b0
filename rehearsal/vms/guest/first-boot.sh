#!/bin/sh
# What cloud-init does last at a first boot: runcmd, and the result for whoever asks.
export PATH="/etc/rehearsal/bin:$PATH" HOME=/root
mkdir -p /run/cloud-init
errors=
if [ -r /etc/cloud/packages ]; then
    echo "not installed in a rehearsal: $(cat /etc/cloud/packages)" >>/var/log/cloud-init-output.log
fi
if [ -x /etc/cloud/runcmd ]; then
    /etc/cloud/runcmd >>/var/log/cloud-init-output.log 2>&1 ||
        errors="\"('scripts_user', RuntimeError('Runparts: 1 failures (runcmd) in 1 attempted commands'))\""
fi
if [ -r /etc/cloud/image-error ]; then
    errors="$errors${errors:+, }\"$(cat /etc/cloud/image-error)\""
fi
printf '{"v1": {"datasource": "DataSourceAzure [seed=rehearsal]", "errors": [%s]}}\n' "$errors" \
    >/run/cloud-init/.result.new
mv /run/cloud-init/.result.new /run/cloud-init/result.json
