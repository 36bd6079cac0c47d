// Command openapigen writes comet's OpenAPI description. swag reads the
// annotations on the handlers and makes a Swagger 2.0 document of them, kin-openapi
// turns that into OpenAPI 3.0.3, and a normaliser adds what swag and the conversion omit:
// nullable members, formats, required members of responses, problem documents, shared
// headers, bearer tokens. The output is deterministic.
//
// It is a separate module, so that the program does not depend on these libraries.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	api := flag.String("api", "../api", "folder of the annotated handlers; its doc.go holds the general part")
	types := flag.String("types", "../models,../internal/errs,../internal/registry,../internal/auth,../internal/a2a/remote,../internal/usage,../webhooks,../store,../store/ledgercheck,../internal/transport,../internal/protocol/v5,../internal/protocol/genesis,../internal/tools/builtin,../internal/workflow,../internal/workflow/plan,../internal/workflow/intent,../internal/schedule,../internal/pubsub,../internal/orchestrator,../internal/orchestrator/selection,openapigen/schema,openapigen/hooks", "further folders with annotated handlers, or with types that handlers name, separated by commas")
	out := flag.String("out", "../openapi", "folder for openapi.json, openapi.yaml and their compressed copies")
	flag.Parse()

	if err := run(*api, strings.Split(*types, ","), *out); err != nil {
		fmt.Fprintln(os.Stderr, "openapigen:", err)
		os.Exit(1)
	}
}

func run(api string, types []string, out string) error {
	jsonText, yamlText, err := generate(append([]string{api}, types...))
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"openapi.json": jsonText, "openapi.yaml": yamlText} {
		packed, err := compress(text)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name+".gz"), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compress returns text in gzip format. The program embeds the result.
func compress(text []byte) ([]byte, error) {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = writer.Write(text)
	err = errors.Join(err, writer.Close())
	return packed.Bytes(), err
}

// generate describes the API whose general part is in the first folder.
func generate(dirs []string) (jsonText, yamlText []byte, err error) {
	annotated, err := os.MkdirTemp("", "openapigen")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(annotated)) }()
	if err := annotateRoutes(dirs[0], annotated); err != nil {
		return nil, nil, err
	}
	dirs = append([]string{annotated}, dirs[1:]...)
	facts, texts, routes, err := readFacts(dirs)
	if err != nil {
		return nil, nil, err
	}
	doc, names, err := convert(dirs)
	if err != nil {
		return nil, nil, err
	}
	named := structs(renamed(facts, names))
	if err := normalise(doc, named, renamed(texts, names), routes); err != nil {
		return nil, nil, err
	}
	return render(doc, named)
}
