package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"comet/internal/nearest"
)

const rootLong = `comet is a control plane for AI agents: it keeps who the agents are, how they
stand to each other, and what they may spend.

"comet serve" runs the server; with nothing configured it keeps everything in
./comet-data. The other commands talk to a server, by default the one on
http://127.0.0.1:8080. Tell them which and who you are by flags, environment
(COMET_SERVER, COMET_TOKEN) or ~/.config/comet/client.yaml.`

const rootExitCodes = `
Exit codes:
  0  done
  1  an error that has no code of its own
  2  wrong usage or configuration
  3  not authenticated or not allowed
  4  not found
  5  conflict with what is there, or a failed precondition
  6  the request or a document is not valid
  7  the server cannot be reached, is not ready, or asks for patience
  130  interrupted by Ctrl-C (SIGINT)
  143  ended by SIGTERM
`

// The groups "comet --help" lists the commands in.
const (
	groupServer = "server"
	groupClient = "client"
)

// newRootCommand returns the whole command tree, and whether a command has begun
// to run: an error from before that is one of usage.
func newRootCommand() (root *cobra.Command, started *bool) {
	root = &cobra.Command{
		Use:           "comet",
		Short:         "A control plane for AI agents",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupClient, Title: "Commands that talk to a server:"},
		&cobra.Group{ID: groupServer, Title: "Commands that run one:"},
	)
	inGroup(root, groupServer, newServeCommand(), newMCPCommand(), newBackupCommand(), newRestoreCommand(), newMigrateCommand(), newConfigCommand(), newHealthcheckCommand())
	inGroup(root, groupClient, newAgentsCommand(), newHierarchyCommand(), newImportCommand(), newExportCommand(),
		newUsageCommand(), newBudgetsCommand(), newLedgerCommand(),
		newTasksCommand(), newSessionsCommand(), newWorkersCommand(), newTailCommand(),
		newUpstreamsCommand(), newToolsCommand(), newRunCommand(),
		newTokensCommand(), newWebhooksCommand(), newMeCommand(),
		newSendCommand(), newWorkerCommand())
	root.AddCommand(newVersionCommand())
	root.SetHelpTemplate(root.HelpTemplate() + "{{if not .HasParent}}" + rootExitCodes + "{{end}}")
	started = new(false)
	prepare(root, started)
	return root, started
}

func inGroup(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// prepare makes every command below note that it has begun, and every command
// that only holds others refuse words it does not know.
func prepare(c *cobra.Command, started *bool) {
	if run := c.RunE; run != nil {
		c.Args = withUsage(c.Args)
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	} else if c.HasSubCommands() {
		c.Args = subcommandMeant
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range c.Commands() {
		prepare(sub, started)
	}
}

// withUsage shows how a command is written to whoever writes it otherwise.
func withUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w; write: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// subcommandMeant refuses a word that is no command, and says which one was probably meant.
func subcommandMeant(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	hint := ""
	if word, ok := nearest.Word(args[0], names); ok {
		hint = "; did you mean " + word + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}
