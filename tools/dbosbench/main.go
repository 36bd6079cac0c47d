// Command dbosbench runs workflows with DBOS Transact (github.com/dbos-inc/dbos-transact-golang) on a PostgreSQL database and
// prints their duration. It is a separate module, so that comet does not depend on DBOS; the benchmarks of
// package workflow start it.
//
//	dbosbench postgres://… [http://…]
//
// It creates the tables of DBOS. Each line of the standard input, "WORKFLOWS STEPS", is one measurement: that many workflows at
// a time, each a chain of steps. The result is a line of JSON. A step does nothing, or calls the tool echo of the MCP server
// whose URL is the second argument.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dbosbench:", err)
		os.Exit(1)
	}
}

// bench runs the workflows.
type bench struct {
	ctx     dbos.Context
	session *mcp.ClientSession // nil for steps that do nothing
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 || len(args) > 2 {
		return fmt.Errorf("usage: dbosbench DATABASE [UPSTREAM]")
	}
	b := &bench{}
	if len(args) == 2 {
		var err error
		client := mcp.NewClient(&mcp.Implementation{Name: "dbosbench", Version: "1"}, nil)
		if b.session, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: args[1]}, nil); err != nil {
			return err
		}
		defer func() { _ = b.session.Close() }()
	}
	var err error
	b.ctx, err = dbos.NewContext(ctx, dbos.Config{AppName: "dbosbench", DatabaseURL: args[0], Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(b.ctx, b.chain)
	if err := dbos.Launch(b.ctx); err != nil {
		return err
	}
	defer func() { _ = dbos.Shutdown(b.ctx, 10*time.Second) }()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var workflows, steps int
		if _, err := fmt.Sscan(lines.Text(), &workflows, &steps); err != nil {
			return err
		}
		took, err := b.measure(workflows, steps)
		if err == nil {
			err = json.NewEncoder(out).Encode(map[string]any{"took": took})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chain is a workflow of steps one after the other.
func (b *bench) chain(ctx dbos.Context, steps int) (int, error) {
	for i := range steps {
		if _, err := dbos.RunAsStep(ctx, b.step); err != nil {
			return i, err
		}
	}
	return steps, nil
}

func (b *bench) step(ctx context.Context) (string, error) {
	if b.session == nil {
		return "{}", nil
	}
	res, err := b.session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{}})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(res)
	return string(text), err
}

// measure runs workflows at a time and returns their duration.
func (b *bench) measure(workflows, steps int) (time.Duration, error) {
	begun := time.Now()
	failed := make(chan error, workflows)
	var all sync.WaitGroup
	for range workflows {
		all.Go(func() {
			handle, err := dbos.RunWorkflow(b.ctx, b.chain, steps)
			if err == nil {
				_, err = handle.GetResult()
			}
			failed <- err
		})
	}
	all.Wait()
	took := time.Since(begun)
	for range workflows {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	return took, nil
}
