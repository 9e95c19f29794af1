package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *command) configCommand() *cobra.Command {
	var link bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in force and where each value comes from",
		Long: `Flags win over the environment (TALLYMAN_…), that over tallyman.yaml, that over the
defaults. Secrets are masked. All that is wrong is told at once, with exit code 2.`,
		Example: `  tallyman config
  tallyman config -o json
  tallyman config --login-link`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if link {
				return c.loginLink(cmd)
			}
			cfg, origins, err := c.config()
			if err != nil {
				return err
			}
			if c.whole() {
				return c.printObject(cfg.Shown(origins))
			}
			return cfg.Print(c.out, origins)
		},
	}
	cmd.Flags().BoolVar(&link, "login-link", false, "print a link that logs one browser in to the running server; works once")
	c.outputFlag(cmd, "json", "yaml")
	return cmd
}

func (c *command) loginLink(cmd *cobra.Command) error {
	s, err := c.connect(cmd.Context(), looks)
	if err != nil {
		return err
	}
	url, err := s.LoginLink(cmd.Context())
	if err != nil {
		return err
	}
	if c.whole() {
		return c.printObject(map[string]string{"url": url})
	}
	_, err = fmt.Fprintln(c.out, url)
	return err
}

func (c *command) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version",
		Example: "  tallyman version\n  tallyman version -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.whole() {
				return c.printObject(map[string]string{"version": c.program.Version})
			}
			_, err := fmt.Fprintln(c.out, "tallyman", c.program.Version)
			return err
		},
	}
	c.outputFlag(cmd, "json", "yaml")
	return cmd
}
