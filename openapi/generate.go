package openapi

// The generators live in a module of their own, tools, and run from there.
//go:generate go run -C ../tools ./openapigen -out ../openapi
//go:generate go tool -C ../tools oapi-codegen -config ../openapi/client/config.yaml -o ../openapi/client/client.gen.go ../openapi/openapi.yaml
