package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"comet/internal/auth"
	"comet/internal/config"
	"comet/internal/errs"
)

// adminTokenFile keeps the admin token of the first start, inside the data
// directory.
const adminTokenFile = "admin.token"

// ensureAdmin sees to it that somebody may administer: the configured token, or
// one that the first start makes and writes to a file before it counts, so that
// a crash in between locks nobody out. It returns a token that was made now.
func ensureAdmin(ctx context.Context, tokens *auth.Auth, cfg config.Config) (string, error) {
	if cfg.AdminToken != "" {
		if _, err := tokens.EnsureAdmin(ctx, cfg.AdminToken, true); err != nil {
			return "", fmt.Errorf("store the admin token: %w", err)
		}
		return "", nil
	}
	has, err := tokens.HasAdmin(ctx)
	if has || err != nil {
		return "", err
	}
	path := filepath.Join(cfg.Data, adminTokenFile)
	secret := auth.NewSecret()
	if left, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(left))) >= len(secret) {
		secret = strings.TrimSpace(string(left)) // of a first start that did not get further
	} else if err := writeSecret(path, secret); err != nil {
		return "", fmt.Errorf("write the admin token to %s: %w", path, err)
	}
	made, err := tokens.EnsureAdmin(ctx, secret, false)
	if err == nil && made {
		return secret, nil
	}
	if err == nil || errs.Is(err, errs.Conflict) { // another replica was first
		return "", os.Remove(path)
	}
	return "", errors.Join(fmt.Errorf("store the admin token: %w", err), os.Remove(path))
}

// announce tells a person where the server is and how to begin.
func (a *App) announce(out io.Writer) {
	path := filepath.Join(a.cfg.Data, adminTokenFile)
	_, _ = fmt.Fprintf(out, "comet listens on %s (%s, data in %s)\n  API description  %s/docs\n", a.URL(), a.store.Database(), a.cfg.Data, a.URL())
	token := a.freshToken
	switch {
	case token != "":
		_, _ = fmt.Fprintf(out, "  Admin token      %s\n                   shown this once; also in %s\n", token, path)
	case a.cfg.AdminToken != "":
		token = "$COMET_ADMIN_TOKEN"
	default:
		if _, err := os.Stat(path); err != nil {
			return
		}
		token = "$(cat " + path + ")"
	}
	_, _ = fmt.Fprintf(out, "\nTry:\n  curl -H \"Authorization: Bearer %s\" %s/api/v1/agents\n\n", token, a.URL())
}
