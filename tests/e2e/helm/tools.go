//go:build tools

// Package helm names the program that is built from here; its module pins helm and all that it needs.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
