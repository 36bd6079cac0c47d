package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/app"
	"comet/internal/background"
	"comet/internal/config"
	"comet/internal/telemetry"
)

// serve runs the server until SIGINT or SIGTERM, then drains.
func serve(ctx context.Context, c *call) error {
	messages := telemetry.NewBuffer(c.messages)
	defer func() { _ = messages.Flush() }()
	log, err := telemetry.NewLogger(messages, &telemetry.LogOptions{
		Level: c.config.Log.Level, Format: c.config.Log.Format, Formats: app.LogFormats(), Secrets: []string{c.config.AdminToken},
	})
	if err != nil {
		return err
	}
	collectGarbageLess()
	var memory sync.WaitGroup
	defer memory.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	memory.Go(func() { background.ReleaseMemory(ctx) })
	return app.Run(ctx, c.config, &app.Options{Logger: log, Build: telemetry.ReadBuild(version), Out: c.out.w})
}

func showConfig(_ context.Context, c *call) error {
	text, err := c.config.Effective()
	if err != nil {
		return err
	}
	_, err = c.out.w.Write(text)
	return err
}

func showMigrations(ctx context.Context, c *call) error {
	return app.WithMigrations(c.config, false, func(m *app.Migrations) error {
		all, err := m.Status(ctx)
		if err != nil {
			return err
		}
		rows := make([][]string, len(all))
		for i, s := range all {
			applied := "pending"
			if s.Applied != nil {
				applied = s.Applied.Format(time.RFC3339)
			}
			rows[i] = []string{fmt.Sprint(s.Version), s.Name, applied}
		}
		return c.out.table([]string{"VERSION", "NAME", "APPLIED"}, rows)
	})
}

func migrateUp(ctx context.Context, c *call) error {
	return app.WithMigrations(c.config, true, func(m *app.Migrations) error { return c.printDone(ctx, "applied", m.Up) })
}

func migrateDown(ctx context.Context, c *call) error {
	return app.WithMigrations(c.config, false, func(m *app.Migrations) error { return c.printDone(ctx, "undone", m.Down) })
}

func (c *call) printDone(ctx context.Context, verb string, run func(context.Context) ([]string, error)) error {
	names, err := run(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		printLine(c.out.w, "%s %s", verb, name)
	}
	if len(names) == 0 {
		printLine(c.out.w, "nothing to do")
	}
	return nil
}

// checkHealth checks the server's health, for containers without a shell.
func checkHealth(ctx context.Context, c *call) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c.server = app.LocalURL(c.config.Listen, c.config.TLS.CertFile != "")
	// The certificate need not name this address. The request contains no secret.
	c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	_, err := c.do(ctx, http.MethodGet, "/healthz", nil, nil)
	if failed, ok := errors.AsType[*unreachableError](err); ok {
		failed.hint = "  Is it running? The address is that of --listen, COMET_LISTEN or the configuration of the server."
	}
	return err
}

func showVersion(_ context.Context, c *call) error {
	build := telemetry.ReadBuild(version)
	out, err := newOutput(c.out.w, given[string](c, "output"), false)
	if err != nil {
		return err
	}
	body, err := json.Marshal(build)
	if err != nil {
		return err
	}
	return out.show(body, func() error {
		printLine(out.w, "%s", build.String())
		return nil
	})
}

func backup(ctx context.Context, c *call) error {
	path := given[string](c, "output")
	report, err := app.Backup(ctx, c.config, path, given[bool](c, "force"))
	if err != nil {
		return err
	}
	printLine(c.out.w, "backed up %s to %s: %s", report.Database, path, describeBackup(report))
	return nil
}

func restore(ctx context.Context, c *call) error {
	report, err := app.Restore(ctx, c.config, c.args[0], given[bool](c, "force"))
	if err != nil {
		return err
	}
	printLine(c.out.w, "restored %s to %s: %s", c.args[0], report.Database, describeBackup(report))
	if report.Former != "" {
		printLine(c.out.w, "the former database is %s", report.Former)
	}
	return nil
}

func describeBackup(report app.BackupReport) string {
	return fmt.Sprintf("%d bytes, schema %d, verified", report.Bytes, report.Schema)
}

// serveMCP runs an MCP server for one client over standard input and output.
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

// mcpConfig returns the configuration of a server in this process; the environment applies as for
// comet serve.
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

// dataOf returns the default data directory for an mcpServers file.
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

// addSettings registers flags of the server's configuration.
func addSettings(cmd *cobra.Command, names string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if names == "all" || slices.Contains(strings.Split(names, ","), f.Name) {
			cmd.Flags().AddFlag(f)
		}
	})
}
