package redact_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/redact"
)

const hex32 = "0123456789abcdef0123456789abcdef"

func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"a token of ours":            {"token " + hex32 + " is unknown", "token ******** is unknown"},
		"its SHA-256":                {"hash " + hex32 + strings.ToUpper(hex32), "hash ********"},
		"a token glued to a word":    {"x" + hex32 + "y", "x********y"},
		"a bearer credential":        {"Authorization: Bearer abc.def-ghi", "Authorization: ******** ********"},
		"a lower case bearer":        {"got bearer s3cr3t, refused", "got bearer ********, refused"},
		"a password in a URL":        {"dial postgres://comet:hunter2@db:5432/comet failed", "dial postgres://comet:********@db:5432/comet failed"},
		"a password in a DSN":        {"host=db password=hunter2 user=comet", "host=db password=******** user=comet"},
		"a token in a query string":  {"/x?token=abc&limit=5", "/x?token=********&limit=5"},
		"a password in JSON":         {`{"password":"hunter2","a":1}`, `{"password":"********","a":1}`},
		"a password in escaped JSON": {`{\"secret\": \"hunter2\"}`, `{\"secret\": \"********\"}`},
		"a request id stays":         {"request 01890a5d-ac96-774b-bcce-b302099a8057", "request 01890a5d-ac96-774b-bcce-b302099a8057"},
		"ordinary text stays":        {"agent created: level 3, token_budget=15000", "agent created: level 3, token_budget=15000"},
		"a URL without user stays":   {"GET http://127.0.0.1:8080/a?b=c@d", "GET http://127.0.0.1:8080/a?b=c@d"},
		"a full commit id goes too":  {"commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit ********"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, redact.Text(c.in))
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"token", "Authorization", "admin_token", "auth-token", "X-Token", "adminToken", "client.secret", "PASSWORD", "Set-Cookie", "DBPassword"} {
		require.True(t, redact.Key(name), name)
	}
	for _, name := range []string{"", "token_budget", "tokens", "tokens_used_today", "token_id", "secretary", "mistoken", "agent"} {
		require.False(t, redact.Key(name), name)
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"request_id": true, "token_id": true, "id": false, "token": false, "admin_token_id": false, "": false} {
		require.Equal(t, want, redact.ID(name), name)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "",
		"postgres://comet:hunter2@db/comet?sslmode=disable":  "postgres://comet:********@db/comet?sslmode=disable",
		"postgres://comet@db/comet?password=x&sslpassword=y": "postgres://comet@db/comet?password=********&sslpassword=********",
		"postgres://db/comet":                                "postgres://db/comet",
		"nats://s3cr3ttoken@n1:4222":                         "nats://********@n1:4222",
		"nats://u:p@n1:4222,nats://u:p@n2:4222":              "nats://u:********@n1:4222,nats://u:********@n2:4222",
		"no url at all hunter2":                              redact.Mask,
		"postgres://a:%zz@db":                                redact.Mask,
	} {
		require.Equal(t, want, redact.URL(in), in)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a ", " b")
	f.Add("token=", "&x")
	f.Add("postgres://u:", "@h")
	f.Fuzz(func(t *testing.T, before, after string) {
		require.NotContains(t, redact.Text(before+hex32+after), hex32)
	})
}
