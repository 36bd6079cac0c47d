package main

import (
	"path"
	"strings"
)

// Limits of size. Production code excludes tests, generated code and tools.
const (
	maxProduction  = 72_000                  // lines in all
	maxPackage     = maxProduction * 7 / 100 // lines of a package, except the REST API
	maxFileLines   = 400
	maxFiles       = 30 // files of a package
	maxExported    = 60 // exported names of a package
	maxModelNames  = 130
	modelsPackage  = "models"
	apiPackage     = "api"
	dashboardPage  = "internal/dashboard/ui/" // TypeScript
	maxUpwardShare = 6                        // at most one in six references between files points up
)

// checkSize counts the lines of production code in all, of each package and of each file.
func checkSize(t *tree) ([]finding, error) {
	total := 0
	var found []finding
	for folder, files := range packagesOf(t.production()) {
		lines := 0
		for _, f := range files {
			text, err := t.read(f)
			if err != nil {
				return nil, err
			}
			n := strings.Count(text, "\n")
			lines += n
			found = append(found, t.over("size-file", f, n, maxFileLines, "lines")...)
		}
		total += lines
		if folder != apiPackage {
			found = append(found, t.over("size-package", folder, lines, maxPackage, "lines of production Go")...)
		}
	}
	for _, f := range t.files {
		if strings.HasPrefix(f, dashboardPage) && (path.Ext(f) == ".ts" || path.Ext(f) == ".tsx") {
			text, err := t.read(f)
			if err != nil {
				return nil, err
			}
			found = append(found, t.over("size-file", f, strings.Count(text, "\n"), maxFileLines, "lines")...)
		}
	}
	return append(t.over("size-all", ".", total, maxProduction, "lines of production Go"), found...), nil
}

// packagesOf groups files by their folder.
func packagesOf(files []string) map[string][]string {
	m := map[string][]string{}
	for _, f := range files {
		m[path.Dir(f)] = append(m[path.Dir(f)], f)
	}
	return m
}
