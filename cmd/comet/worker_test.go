package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/openapi/client"
)

func TestWorkerIdentity(t *testing.T) {
	t.Parallel()
	who := client.AgentItem{ID: "deployer", IsActive: true, Type: new("infra"), Capabilities: []string{"custom:run_playbook", "deploy"}}
	require.Nil(t, change{}.from(who), "no flags")
	require.Nil(t, change{"infra", []string{"deploy", "run_playbook"}}.from(who), "the same values")
	require.Equal(t, &change{Capabilities: []string{"deploy"}}, change{"infra", []string{"deploy"}}.from(who))
	require.Equal(t, &change{Type: "code"}, change{Type: "code"}.from(who))
	require.NoError(t, workerReady(who))
	who.Type = nil
	require.ErrorContains(t, workerReady(who), "--type")
}

func TestState(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	_, unlock, err := openState(dir)
	require.NoError(t, err)
	_, _, err = openState(dir)
	require.ErrorContains(t, err, "another worker uses "+dir)
	unlock()
	_, unlock, err = openState(dir)
	require.NoError(t, err)
	unlock()
}
