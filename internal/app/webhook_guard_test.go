package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/store/storetest"
)

// These tests replace the resolver of the process, so they do not run in parallel.

// onGuardedServers runs a test on every database against a server that may deliver to the networks.
func onGuardedServers(t *testing.T, networks []string, fn func(t *testing.T, c *client)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			cfg := configured(t, name)
			cfg.Webhooks.AllowNetworks = networks
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			fn(t, newClient(t, a.URL(), adminToken(t, cfg.Data)))
		})
	}
}

// attempted is the result of a delivery attempt.
type attempted struct {
	Status int
	Error  string
}

// attemptsAt registers a webhook for new agents, tests it, creates an agent, and returns the
// results of the test and of the first delivery.
func attemptsAt(t *testing.T, c *client, url, agent string) (test, delivery attempted) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/webhooks", map[string]any{"url": url, "events": []string{"agent.created"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	var made struct{ ID string }
	require.NoError(t, json.Unmarshal(body, &made))
	path := "/api/v1/webhooks/" + made.ID

	status, body, err = c.do(t.Context(), http.MethodPost, path+"/test", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var tested struct {
		Succeeded bool
		Attempt   attempted
	}
	require.NoError(t, json.Unmarshal(body, &tested))
	require.False(t, tested.Succeeded)

	c.createAgent(t, specialist(agent))
	eventually(t, func() bool {
		type list struct{ Deliveries []struct{ ID, Key string } }
		for _, d := range get[list](t, c, path+"/deliveries?event=agent.created").Deliveries {
			all := get[struct{ Attempts []attempted }](t, c, path+"/deliveries/"+d.ID).Attempts
			if d.Key == agent && len(all) > 0 {
				delivery = all[0]
				return true
			}
		}
		return false
	}, "a delivery is attempted")
	return tested.Attempt, delivery
}

// countingListener counts incoming connections.
func countingListener(t *testing.T) (port string, came *atomic.Int64) {
	t.Helper()
	came = new(atomic.Int64)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			came.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	return port, came
}

func TestInternalAddressIsRefusedAtRegistration(t *testing.T) {
	port, came := countingListener(t)
	onGuardedServers(t, nil, func(t *testing.T, c *client) {
		status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"agent.updated"}})
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
		var public struct{ ID string }
		require.NoError(t, json.Unmarshal(body, &public))
		for _, host := range []string{
			"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "0.0.0.0", "[::]", "10.0.0.1", "172.16.0.1",
			"192.168.1.1", "[fd00::1]", "169.254.169.254", "[fe80::1]", "100.64.0.1", "224.0.0.1", "[ff02::1]", "255.255.255.255", "2130706433", "127.1",
			"0x7f000001", "0177.0.0.1", "localhost", "LOCALHOST.", "a.localhost",
		} {
			draft := map[string]any{"url": "http://" + host + ":" + port + "/", "events": []string{"agent.created"}}
			for path, method := range map[string]string{"/api/v1/webhooks": http.MethodPost, "/api/v1/webhooks/" + public.ID: http.MethodPatch} {
				status, body, err := c.do(t.Context(), method, path, draft)
				require.NoError(t, err)
				require.Equal(t, http.StatusUnprocessableEntity, status, "%s %s: %s", method, host, body)
				var problem struct {
					Code   string
					Errors []struct{ Pointer string }
				}
				require.NoError(t, json.Unmarshal(body, &problem))
				require.Equal(t, "address-refused", problem.Code)
				require.Len(t, problem.Errors, 1)
				require.Equal(t, "/url", problem.Errors[0].Pointer)
			}
		}
	})
	require.Zero(t, came.Load())
}

// TestInternalNameIsRefusedAtEveryConnection: names may be registered, because they may resolve
// differently later; the test and the delivery refuse them with the same message.
func TestInternalNameIsRefusedAtEveryConnection(t *testing.T) {
	port, came := countingListener(t)
	inside := map[string]string{
		"loopback.example": "127.0.0.1", "other-loopback.example": "127.8.8.8", "private.example": "10.0.0.1", "metadata.example": "169.254.169.254",
		"carrier.example": "100.64.0.1", "multicast.example": "224.0.0.1", "mapped.example": "::ffff:127.0.0.1", "nat64.example": "64:ff9b::7f00:1",
		"unique-local.example": "fd00::1", "site.example": "::1",
	}
	resolve(t, inside)
	onGuardedServers(t, nil, func(t *testing.T, c *client) {
		for name, addr := range inside {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // with one another
				test, delivery := attemptsAt(t, c, "http://"+name+":"+port+"/", "to-"+strings.TrimSuffix(name, ".example"))
				require.Equal(t, test, delivery)
				require.Zero(t, test.Status)
				require.Regexp(t, `^"`+name+`" resolves to (a|an|the) [a-zA-Z0-9 -]+; comet connects to it only if webhooks.allow_networks permits it$`, test.Error)
				require.NotContains(t, test.Error, netip.MustParseAddr(addr).Unmap().String(), "the internal address is not disclosed")
			})
		}
	})
	require.Zero(t, came.Load())

	t.Run("unless it is allowed", func(t *testing.T) {
		onGuardedServers(t, []string{"127.0.0.1"}, func(t *testing.T, c *client) {
			before := came.Load()
			test, delivery := attemptsAt(t, c, "http://loopback.example:"+port+"/", "there")
			require.Equal(t, attempted{404, "the server answered 404 Not Found"}, test)
			require.Equal(t, test, delivery)
			require.Greater(t, came.Load(), before)
			test, delivery = attemptsAt(t, c, "http://other-loopback.example:"+port+"/", "not-there")
			require.Contains(t, test.Error, `"other-loopback.example" resolves to a loopback address`)
			require.Equal(t, test, delivery)
		})
	})
}

func TestRedirectIsNotFollowed(t *testing.T) {
	port, came := countingListener(t)
	resolve(t, map[string]string{"inside.example": "127.0.0.1"})
	targets := []string{
		"http://127.0.0.1:" + port + "/", // even where it may be connected to
		"http://inside.example:" + port + "/", "http://10.0.0.1:" + port + "/", "http://169.254.169.254/latest/meta-data/", "//127.0.0.1:" + port + "/",
	}
	statuses := []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		w.Header().Set("Location", targets[n])
		w.WriteHeader(statuses[n])
	}))
	t.Cleanup(server.Close)
	onGuardedServers(t, []string{"127.0.0.1"}, func(t *testing.T, c *client) {
		for n, target := range targets {
			test, delivery := attemptsAt(t, c, fmt.Sprintf("%s/%d", server.URL, n), fmt.Sprintf("redirected-%d", n))
			require.Equal(t, attempted{statuses[n], fmt.Sprintf("redirects are not followed: %d to %s", statuses[n], target)}, test)
			require.Equal(t, test, delivery)
		}
	})
	require.Zero(t, came.Load())
}
