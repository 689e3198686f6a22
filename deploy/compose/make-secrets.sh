#!/bin/sh
# Makes what a cluster on Redis keeps secret: make-secrets.sh CLUSTER.YAML FOLDER. What exists is left as it is.
# FOLDER gets cluster.token, pages.addresses, a password file for each user of `stoker docs users.acl`, and users.acl with their hashes
# only, so that Redis may read that file although it runs as another user.
set -eu
cluster=$1
folder=$2
name=$(sed -n 's/^name: *//p' "$cluster")
umask 077

# Writes a file of which others see all or nothing: Redis takes an empty users.acl for one that lets everybody in.
write() {
    cat > "$1.new"
    chmod "$2" "$1.new"
    mv "$1.new" "$1"
}

# A secret of 64 characters, on a line of its own.
make_secret() {
    [ -e "$1" ] || { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; echo; } | write "$1" 600
}

make_secret "$folder/cluster.token"
pages=$folder/pages.addresses
[ -e "$pages" ] || echo "oncall alertmanager://127.0.0.1:9093" | write "$pages" 600
acl=$(stoker docs users.acl | sed "s/:NAME:/:$name:/g")
for user in stoker stoker-agent stoker-command stoker-read admin; do
    make_secret "$folder/$user.password"
    hash=$(tr -d '\n' < "$folder/$user.password" | sha256sum | cut -d ' ' -f 1)
    acl=$(printf '%s\n' "$acl" | sed "s/^user $user on resetpass/user $user on #$hash/")
done
chmod 755 "$folder"
printf '%s\n' "$acl" | write "$folder/users.acl" 644
