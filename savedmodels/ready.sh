#!/usr/bin/env bash
# Exits 0 when every model named has an available version: the readiness check of a server on this machine.
#
#     ready.sh flickr8k [NAME ...]
#
# The server answers 200 while a model is loading too, so the answer itself is read. The server's image has
# bash and no curl; bash opens the connection by itself.
set -u
port=${REST_PORT:-8501}
for name in "${@:?name the models}"; do
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
    printf 'GET /v1/models/%s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$name" >&3
    timeout 3 grep -Eq '"state": *"AVAILABLE"' <&3 || exit 1
    exec 3>&-
done
