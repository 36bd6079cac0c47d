package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/bus/bustest"
	"comet/store/storetest"
)

// TestThreeReplicas: three servers share one PostgreSQL and one NATS. Agents are on the
// first two, requests come to all three, and the first is killed: nothing that was taken
// on is lost, and the others go on. Then NATS is killed and comes back empty.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "postgres" {
			testThreeReplicas(t)
		}
	}
}

func testThreeReplicas(t *testing.T) {
	t.Helper()
	nats := bustest.Start(t, bustest.Settings{})
	database := env("COMET_DATABASE_URL="+storetest.EmptyPostgres(t), "COMET_NATS_URL="+nats.URL())
	const admin = "0123456789abcdef0123456789abcdef"
	var all []*process
	var doors []*client
	for range 3 {
		p := serve(t, t.TempDir(), database, env("COMET_ADMIN_TOKEN="+admin))
		all = append(all, p)
		doors = append(doors, newClient(t, p.url(t), admin))
	}
	work := &jobRunner{tokens: 7}
	agents := []string{"infra-1", "infra-2", "infra-3"}
	for n, id := range agents {
		url, token := doors[min(n, 1)].url, doors[2].registerInfra(t, id, "job") // the first agent alone is on the server that is killed
		if n == 1 {
			work.runV5Agent(t, overWebSocket(url, token), token, 4)
		} else {
			work.runAgent(t, url, token, 4)
		}
	}
	var jobs []*job
	ask := func(doors []*client, many int) {
		for n := range many {
			speak, err := comet.NewClient(doors[n%len(doors)].url, admin, doors[0].http)
			require.NoError(t, err)
			j := newJob(len(jobs), 50)
			require.True(t, submitUntilAccepted(t.Context(), speak, j))
			jobs = append(jobs, j)
		}
	}
	ask(doors, 60)
	all[0].kill()
	ask(doors[1:], 60)
	nats.Kill()
	ask(doors[1:], 30)
	nats.Restart(t)
	ask(doors[1:], 60)
	charged := doors[2].settle(t, jobs...)
	for _, d := range charged.tasks {
		require.Equal(t, "done", d.State, "%+v", d)
	}
	charged.requireSettled(t, agents...)
	require.Positive(t, charged.tokensOf(t, "infra-3"))
	all[1].stop(t)
	all[2].stop(t)
}
