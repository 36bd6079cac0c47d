//go:build unix

package upstream_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/upstream"
)

func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("from-a-file\n"), 0o600))
	lookup := func(name string) (string, bool) {
		switch name {
		case "SECRET":
			return "from-the-environment", true
		case "HOME":
			return "/home/user", true
		case "OTHER":
			return "of-no-concern", true
		}
		return "", false
	}
	def := fakeServer("a", "plain")
	def.Env["API_KEY"], def.Env["FILE_KEY"], def.Env["LITERAL"] = "${SECRET}", "x-${file:"+file+"}", "as-it-stands"
	def.Env["ELSE"], def.Env["DOLLARS"] = "${UNSET:-otherwise}", "$${not-a-reference}"
	exits := fakeServer("exits", "exits")
	exits.Env["API_KEY"] = "${env:SECRET}"
	b := setup(t, upstream.Options{LookupEnv: lookup}, def, exits)

	env := strings.Split(b.call(t, "a", "env", ""), "\n")
	require.Subset(t, env, []string{
		"API_KEY=from-the-environment", "FILE_KEY=x-from-a-file", "LITERAL=as-it-stands", "ELSE=otherwise",
		"DOLLARS=${not-a-reference}", "HOME=/home/user",
	})
	require.NotContains(t, strings.Join(env, "\n"), "of-no-concern", "it gets a minimal environment")

	s := b.await(t, "exits", func(s upstream.Status) bool { return s.Error != "" && len(s.Stderr) > 0 })
	require.Contains(t, s.Error, "its last output: cannot open ********")
	require.Equal(t, []string{"cannot open ********"}, s.Stderr[:1])
	b.call(t, "a", "garbage", "")
	all, err := json.Marshal(b.Servers())
	require.NoError(t, err)
	for _, where := range []string{string(all), b.logged()} {
		for _, secret := range []string{"from-the-environment", "from-a-file", "as-it-stands"} {
			require.NotContains(t, where, secret)
		}
	}
	require.Equal(t, []string{"API_KEY", "DOLLARS", "ELSE", "FAKE_UPSTREAM", "FILE_KEY", "LITERAL"}, b.status(t, "a").EnvNames)
}

func TestAReferenceThatMeansNothingFailsItsUpstreamOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ value, want string }{
		"a variable that is not set": {"${NO_SUCH}", "in env.KEY, the variable NO_SUCH is not set"},
		"an empty variable":          {"${EMPTY}", "in env.KEY, the variable EMPTY is empty"},
		"a file that is not there":   {"${file:/no/such}", "in env.KEY, open /no/such: no such file or directory"},
		"a protected file":           {"${file:/data/comet.db}", `in env.KEY, the file "/data/comet.db" is in comet's data directory; keep secrets elsewhere`},
		"another kind of reference":  {"${input:token}", `in env.KEY, "${input:token}" is not a reference to a variable or a file`},
		"half a reference":           {"${HALF", `in env.KEY, "${HALF" has no closing brace`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := fakeServer("bad", "plain")
			bad.Env["KEY"] = c.value
			b := setup(t, upstream.Options{
				LookupEnv:   func(name string) (string, bool) { return "", name == "EMPTY" },
				IsProtected: func(path string) bool { return path == "/data/comet.db" },
			}, bad, fakeServer("good", "plain"))
			s := b.await(t, "bad", func(s upstream.Status) bool { return s.Error != "" })
			require.Equal(t, c.want, s.Error)
			require.Equal(t, "{}", b.call(t, "good", "echo", ""))
			err := b.CheckFiles(bad)
			if name == "a protected file" {
				requireCode(t, errs.InvalidRequest, err)
				require.Contains(t, err.Error(), "data directory")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
