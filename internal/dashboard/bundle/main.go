// Command bundle builds the dashboard's page: it bundles internal/dashboard/ui with the libraries of third_party/js.
//
//	go run ./bundle -out dist          (in internal/dashboard; "go generate" runs it)
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	out := flag.String("out", "dist", "folder for the bundled files")
	flag.Parse()
	if err := bundle(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func bundle(out string) error {
	libraries, err := filepath.Abs("../../third_party/js")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		EntryPointsAdvanced: []api.EntryPoint{{InputPath: "ui/main.tsx", OutputPath: "app"}},
		Outdir:              out,
		NodePaths:           []string{libraries},
		Bundle:              true,
		Splitting:           true,
		ChunkNames:          "[name]-[hash]",
		Format:              api.FormatESModule,
		Platform:            api.PlatformBrowser,
		Target:              api.ES2022,
		JSX:                 api.JSXAutomatic,
		JSXImportSource:     "preact",
		MinifyWhitespace:    true,
		MinifyIdentifiers:   true,
		MinifySyntax:        true,
		LegalComments:       api.LegalCommentsEndOfFile,
		Charset:             api.CharsetUTF8,
		LogLevel:            api.LogLevelWarning,
		Write:               true,
	})
	if len(result.Errors) > 0 {
		return fmt.Errorf("%d errors in internal/dashboard/ui", len(result.Errors))
	}
	icon, err := os.ReadFile("ui/icon.svg")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "icon.svg"), icon, 0o644)
}
