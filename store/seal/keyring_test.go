package seal

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ring(t *testing.T, keys ...string) *Keyring {
	t.Helper()
	r, err := Parse(strings.Join(keys, "\n"))
	require.NoError(t, err)
	return r
}

func TestSealedValueOpensWithItsPurposeOnly(t *testing.T) {
	t.Parallel()
	r := ring(t, NewKey())
	for _, plain := range []string{"x", strings.Repeat("secret", 1000)} {
		sealed := r.Seal("webhooks.secret", []byte(plain))
		require.True(t, bytes.HasPrefix(sealed, r.Prefix()))
		require.NotContains(t, string(sealed), "secret"+"secret")
		require.NotEqual(t, sealed, r.Seal("webhooks.secret", []byte(plain)), "the nonce is random")
		opened, err := r.Open("webhooks.secret", sealed)
		require.NoError(t, err)
		require.Equal(t, plain, string(opened))
		_, err = r.Open("push_targets.secret", sealed)
		require.ErrorContains(t, err, "the secret push_targets.secret is damaged or belongs to another column")
	}
}

func TestEveryKeyOpensAndTheFirstSeals(t *testing.T) {
	t.Parallel()
	first, second := NewKey(), NewKey()
	before := ring(t, first)
	sealed := before.Seal("p", []byte("v"))
	after := ring(t, second, first)
	require.NotEqual(t, before.Prefix(), after.Prefix())
	opened, err := after.Open("p", sealed)
	require.NoError(t, err)
	require.Equal(t, "v", string(opened))
	_, err = before.Open("p", after.Seal("p", []byte("v")))
	require.ErrorContains(t, err, "the database has a secret (p) that is encrypted with the key "+after.keys[0].id+", which this server does not have")
	require.ErrorContains(t, err, "--secret-key-file (COMET_SECRET_KEY_FILE)")
}

func TestDamagedValueIsAnError(t *testing.T) {
	t.Parallel()
	r := ring(t, NewKey())
	sealed := r.Seal("p", []byte("value"))
	for i := len(prefix); i < len(sealed)-1; i++ {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 2
		_, err := r.Open("p", damaged)
		require.Error(t, err, "byte %d", i)
		_, err = r.Open("p", sealed[:i])
		require.Error(t, err, "%d bytes", i)
	}
}

func TestLoadReadsKeysAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		require.NoError(t, os.Chmod(path, mode))
	}
	write("# the new key\r\n"+NewKey()+"\r\n\n"+NewKey()+"\n", 0o600)
	r, exposed, err := Load(path)
	require.NoError(t, err)
	require.False(t, exposed)
	require.Len(t, r.keys, 2)

	write(NewKey(), 0o644)
	_, exposed, err = Load(path)
	require.NoError(t, err)
	require.True(t, exposed)

	for content, says := range map[string]string{
		"":                             "it contains no key",
		"# only a comment\n":           "it contains no key",
		NewKey() + "\nhunter2!":        "line 2 is not a key of 32 bytes in base64, as “openssl rand -base64 32” prints it",
		"c2l4dGVlbiBieXRlcyBvaw==":     "line 1 is not a key of 32 bytes",
		strings.Repeat("x", maxFile+1): "it is not a file of at most 65536 bytes",
	} {
		write(content, 0o600)
		_, _, err := Load(path)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, path)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, _, err = Load(filepath.Join(filepath.Dir(path), "none"))
	require.ErrorContains(t, err, "no such file")
	require.ErrorContains(t, err, "COMET_SECRET_KEY_FILE")
}

func TestPlainValueIsReadAsItIs(t *testing.T) {
	t.Parallel()
	for _, plain := range []string{"", "a secret", `{"Authorization":"x"}`} {
		for _, r := range []*Keyring{nil, ring(t, NewKey())} {
			opened, err := r.Open("p", []byte(plain))
			require.NoError(t, err)
			require.Equal(t, plain, string(opened))
		}
		require.Empty(t, ring(t, NewKey()).Seal("p", nil))
		require.Equal(t, plain, string((*Keyring)(nil).Seal("p", []byte(plain))))
	}
}
