package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
	"comet/openapi/client"
)

// mcpFlags are the flags of "comet mcp".
type mcpFlags struct {
	servers, data, names, level string
	noCache                     bool
}

// newMCPCommand is "comet mcp", an MCP server for one client over standard input and output.
func newMCPCommand() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an MCP client over stdio",
		Long: `Serve one MCP client over standard input and output. The client sees a few tools that search
the tools of all servers in an mcpServers file, run code that calls them and submit tasks to
agents. Only the protocol goes to standard output; the log goes to standard error.

With --config it starts the servers itself and stores its data below the user's configuration
directory, or in --data. With --server it is a relay to a running comet server, and needs a
token for it (--token or COMET_TOKEN, scope tools:call).`,
		Example: `  comet mcp --config ~/servers.json
  comet mcp --server http://127.0.0.1:8080`,
	}
	link := addClientFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.servers, "config", "", "the mcpServers `file` of the servers to start")
	fs.StringVar(&f.data, "data", "", "`directory` for the data (default: a directory for this file below the user's configuration directory)")
	fs.StringVar(&f.names, "tool-names", "portable", "the form of tool `names`: portable (server__tool) or documented (server:tool)")
	fs.BoolVar(&f.noCache, "no-cache", false, "cache neither search results nor compiled code")
	fs.StringVar(&f.level, "log-level", "warn", "the lowest `level` that is logged: debug, info, warn or error")
	cmd.MarkFlagsMutuallyExclusive("config", "server")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, err := telemetry.NewLogger(cmd.ErrOrStderr(), &telemetry.LogOptions{Level: f.level, Format: "auto"})
		if err != nil {
			return usagef("--log-level must be debug, info, warn or error: %w", err)
		}
		opts := &app.Options{Logger: log, Build: telemetry.ReadBuild(version)}
		if f.servers == "" {
			s, err := loadSettings(cmd.Flags(), link)
			if err == nil {
				err = checkToken(cmd, link)
			}
			if err != nil {
				return err
			}
			return app.RelayStdio(cmd.Context(), s.server, s.token, os.Stdin, os.Stdout, opts)
		}
		cfg, err := f.config()
		if err != nil {
			return err
		}
		return app.RunStdio(cmd.Context(), cfg, os.Stdin, os.Stdout, opts)
	}
	return cmd
}

// checkToken asks the server whether it accepts the token: once the relay runs, it cannot report
// a rejected token well.
func checkToken(cmd *cobra.Command, link *clientFlags) error {
	s, err := newSession(cmd, link)
	if err != nil {
		return err
	}
	_, err = s.readResponse(s.api.ListTools(cmd.Context(), &client.ListToolsParams{Limit: new(1)}))
	return err
}

// config is the configuration of a server that runs here: the environment counts as for comet
// serve.
func (f *mcpFlags) config() (config.Config, error) {
	flags := pflag.NewFlagSet("mcp", pflag.ContinueOnError)
	config.Flags(flags)
	if f.data == "" {
		dir, err := dataOf(f.servers)
		if err != nil {
			return config.Config{}, err
		}
		f.data = dir
	}
	for name, value := range map[string]string{
		"mcp-servers": f.servers, "data": f.data, "tool-names": f.names, "no-cache": fmt.Sprint(f.noCache), "log-level": f.level,
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
