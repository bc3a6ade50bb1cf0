#!/bin/sh
# Builds Grafana Pyroscope from its Go module, without its page: pyroscope.sh DIRECTORY. The program is DIRECTORY/pyroscope.
#
# Version 1.9: it can do with a published version of the API's module. Later ones need packages that no such version has, and take
# them from a folder beside them.
set -eu
module=github.com/grafana/pyroscope
mkdir -p "$1"
cd "$1"
cat >go.mod <<END
module engines
go 1.22
require $module v1.9.0
replace (
	$module/api => $module/api v1.0.0
	github.com/hashicorp/memberlist => github.com/grafana/memberlist v0.3.1-0.20220708130638-bd88e10a3d91
	gopkg.in/yaml.v3 => github.com/colega/go-yaml-yaml v0.0.0-20220720105220-255a8d16d094
)
END
# Pyroscope's own check sums.
cat "$(go mod download -json "$module@v1.9.0" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/go.sum" >go.sum
CGO_ENABLED=0 go build -mod=mod -o pyroscope "$module/cmd/pyroscope"
