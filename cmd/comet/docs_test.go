package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestDocumentation compares docs/cli.md with the commands.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	doc := string(data)
	rows := map[string]string{} // command → its row
	for _, m := range regexp.MustCompile("(?m)^\\| `(comet[a-z0-9 -]*)`.*$").FindAllStringSubmatch(doc, -1) {
		rows[m[1]] = m[0]
	}
	newRoot := func() *cobra.Command { // a command sorts its flags when it visits them, so that the subtests cannot share one
		root, _ := newRootCommand()
		root.InitDefaultCompletionCmd()
		return root
	}

	t.Run("has a row for every command", func(t *testing.T) {
		t.Parallel()
		var commands, documented []string
		walk(newRoot(), func(c *cobra.Command) { commands = append(commands, c.CommandPath()) })
		for name := range rows {
			documented = append(documented, name)
		}
		require.ElementsMatch(t, commands, documented)
	})

	t.Run("lists the flags of every client command", func(t *testing.T) {
		t.Parallel()
		walk(newRoot(), func(c *cobra.Command) {
			if c.GroupID == groupServer || c.Parent().GroupID == groupServer || c.GroupID+c.Parent().GroupID == "" {
				return
			}
			var flags []string
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" {
					flags = append(flags, "--"+f.Name)
				}
			})
			require.ElementsMatch(t, flags, regexp.MustCompile(`--[a-z-]+`).FindAllString(rows[c.CommandPath()], -1), c.CommandPath())
		})
	})

	t.Run("has the settings of client commands", func(t *testing.T) {
		t.Parallel()
		newRoot().Commands()[0].PersistentFlags().VisitAll(func(f *pflag.Flag) { require.Contains(t, doc, "| `--"+f.Name+"`") })
		for _, name := range []string{envServer, envToken, envOutput, envClientConfig, defaultServer} {
			require.Contains(t, doc, "`"+name+"`")
		}
	})

	t.Run("has the exit codes of the help", func(t *testing.T) {
		t.Parallel()
		for line := range strings.Lines(rootExitCodes) {
			code, meaning, ok := strings.Cut(strings.TrimSpace(line), "  ")
			if ok {
				require.Contains(t, doc, fmt.Sprintf("| %s | %s |", code, meaning))
			}
		}
	})
}

// walk visits every command that can be run.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	if c.Name() == "completion" {
		visit(c)
		return
	}
	if !c.HasSubCommands() {
		visit(c)
	}
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}
