package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"comet/internal/auth"
	"comet/internal/config"
	"comet/internal/errs"
)

// adminTokenFile holds the admin token of the first start, inside the data directory.
const adminTokenFile = "admin.token"

// ensureAdmin makes sure that an admin token exists: the configured one, or one that the first
// start generates. It is written to its file before it is stored, so that it is not lost in a
// crash. ensureAdmin returns the token if it was generated now.
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
	secret, inFile := unusedToken(ctx, tokens, path)
	if !inFile {
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

// unusedToken returns the token in the file if it was never stored, otherwise a new one. A token
// that was stored may have been revoked and must not become valid again.
func unusedToken(ctx context.Context, tokens *auth.Auth, path string) (secret string, inFile bool) {
	fresh := auth.NewSecret()
	if _, err := tokens.Get(ctx, auth.BootstrapTokenID); !errs.Is(err, errs.NotFound) {
		return fresh, false
	}
	content, err := os.ReadFile(path)
	if secret = strings.TrimSpace(string(content)); err != nil || len(secret) < len(fresh) {
		return fresh, false
	}
	return secret, true
}
