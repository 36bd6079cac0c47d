package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
)

// serveMCP is an MCP server for one client over standard input and output.
func serveMCP(ctx context.Context, c *call) error {
	if c.changed("config") && c.changed("server") {
		return usagef("give --config or --server, not both")
	}
	log, err := telemetry.NewLogger(c.messages, &telemetry.LogOptions{Level: given[string](c, "log-level"), Format: "auto"})
	if err != nil {
		return usagef("--log-level must be debug, info, warn or error: %w", err)
	}
	opts := &app.Options{Logger: log, Build: telemetry.ReadBuild(version)}
	if !c.changed("config") {
		// Once the relay runs, it cannot report a rejected token well.
		if _, err := c.do(ctx, http.MethodGet, "/api/v1/tools?limit=1", nil, nil); err != nil {
			return err
		}
		return app.RelayStdio(ctx, c.server, c.token, os.Stdin, os.Stdout, opts)
	}
	cfg, err := c.mcpConfig()
	if err != nil {
		return err
	}
	return app.RunStdio(ctx, cfg, os.Stdin, os.Stdout, opts)
}

// mcpConfig is the configuration of a server that runs here: the environment counts as for comet
// serve.
func (c *call) mcpConfig() (config.Config, error) {
	flags := pflag.NewFlagSet("mcp", pflag.ContinueOnError)
	config.Flags(flags)
	data := given[string](c, "data")
	if data == "" {
		var err error
		if data, err = dataOf(given[string](c, "config")); err != nil {
			return config.Config{}, err
		}
	}
	for name, value := range map[string]string{
		"mcp-servers": given[string](c, "config"), "data": data, "tool-names": given[string](c, "tool-names"),
		"no-cache": fmt.Sprint(given[bool](c, "no-cache")), "log-level": given[string](c, "log-level"),
	} {
		if err := flags.Set(name, value); err != nil {
			return config.Config{}, usagef("--%s: %w", name, err)
		}
	}
	return config.Load(config.Sources{Flags: flags, Environ: os.Environ()})
}

// dataOf is the default data directory for an mcpServers file.
func dataOf(servers string) (string, error) {
	path, err := filepath.Abs(servers)
	if err != nil {
		return "", usagef("--config: %w", err)
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", usagef("there is no user configuration directory (%w); set --data", err)
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(base, "comet", "mcp", hex.EncodeToString(sum[:6])), nil
}
