// Package openapi embeds the description of comet's REST API, so that a server needs no other files to
// serve it. The generators, in the module tools, generate it from the annotations in package api.
package openapi

//go:generate go run -C ../tools ./openapigen -out ../openapi
//go:generate go tool -C ../tools oapi-codegen -config ../openapi/client/config.yaml -o ../openapi/client/client.gen.go ../openapi/openapi.yaml

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

//go:embed openapi.json.gz
var jsonText []byte

//go:embed openapi.yaml.gz
var yamlText []byte

// JSON decompresses and returns the OpenAPI 3.0.3 description as JSON.
func JSON() []byte { return Gunzip(jsonText) }

// YAML decompresses and returns the same description as YAML.
func YAML() []byte { return Gunzip(yamlText) }

// Gunzip decompresses an embedded file. It panics if the file is invalid.
func Gunzip(file []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err == nil {
		file, err = io.ReadAll(z)
	}
	if err != nil {
		panic(err)
	}
	return file
}
