// Package openapi carries the description of comet's REST API inside the program,
// so that every server can say what it offers, without a file beside it. The
// description is made of the annotations in package api; see generate.go.
package openapi

import _ "embed"

//go:embed openapi.json
var jsonText []byte

//go:embed openapi.yaml
var yamlText []byte

// JSON returns the OpenAPI 3.0.3 description as JSON. The caller must not change it.
func JSON() []byte { return jsonText }

// YAML returns the same description as YAML. The caller must not change it.
func YAML() []byte { return yamlText }
