package app

import (
	"context"
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
	secret, left := leftBehind(ctx, tokens, path)
	if !left {
		if err := writeSecret(path, secret); err != nil {
			return "", fmt.Errorf("write the admin token to %s: %w", path, err)
		}
	}
	made, err := tokens.EnsureAdmin(ctx, secret, false)
	switch {
	case err != nil: // the file stays: the next start tries the same token
		return "", fmt.Errorf("store the admin token: %w", err)
	case !made: // another replica was first
		return "", os.Remove(path)
	}
	return secret, nil
}

// leftBehind returns the token in the file, if it was never stored: one that was
// may have been revoked since, and must not come back. Else it makes one.
func leftBehind(ctx context.Context, tokens *auth.Auth, path string) (secret string, left bool) {
	fresh := auth.NewSecret()
	if _, err := tokens.Get(ctx, auth.BootstrapTokenID); !errs.Is(err, errs.NotFound) {
		return fresh, false
	}
	kept, err := os.ReadFile(path)
	if secret = strings.TrimSpace(string(kept)); err != nil || len(secret) < len(fresh) {
		return fresh, false
	}
	return secret, true
}

// announce tells a person where the server is and how to begin, in one piece.
func (a *App) announce(ctx context.Context) {
	text := fmt.Sprintf("comet listens on %s (%s, data in %s)\n  API description  %s/docs\n", a.URL(), a.store.Database(), a.cfg.Data, a.URL())
	if a.tcp != nil {
		text += fmt.Sprintf("  PROTOCOL_V5      %s (TCP, a message a line)\n", a.V5Addr())
	}
	if a.freshToken != "" {
		text += fmt.Sprintf("  Admin token      %s\n                   shown this once; also in %s\n", a.freshToken, a.adminTokenPath())
	}
	if token := a.tokenForShell(ctx); token != "" {
		text += fmt.Sprintf("\nTry:\n  curl -H \"Authorization: Bearer %s\" %s/api/v1/agents\n\n", token, a.URL())
	}
	_, _ = io.WriteString(a.opts.Out, text)
}

// tokenForShell is the admin token as a shell finds it between double quotes; ""
// where we do not know one that works.
func (a *App) tokenForShell(ctx context.Context) string {
	switch {
	case a.freshToken != "":
		return a.freshToken
	case a.cfg.AdminToken != "":
		return "$COMET_ADMIN_TOKEN"
	}
	path := a.adminTokenPath()
	kept, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	// It may have been rotated or revoked since it was written.
	if _, err := a.tokens.Verify(ctx, strings.TrimSpace(string(kept))); err != nil {
		return ""
	}
	return "$(cat '" + strings.ReplaceAll(path, "'", `'\''`) + "')"
}

func (a *App) adminTokenPath() string { return filepath.Join(a.cfg.Data, adminTokenFile) }
