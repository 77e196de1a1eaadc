/**
 * Associated data of each sealed value: it binds the value to its row, so that a copy in another row cannot be opened. Add a new
 * kind to `SEALED` in dev/admin/sealed-columns.ts too, or key rotation misses its values.
 */
export const projectAssociatedData = (ref: string, secret: 'password' | 'runner_password' | 'jwt_secret') =>
  `projects/${ref}/${secret}`

/** The hash is that of the key itself, so a sealed key that is moved to another row cannot be opened. */
export const apiKeyAssociatedData = (hash: string) => `api_keys/${hash}`

export const signingKeyAssociatedData = ({ ref, id }: { ref: string; id: string }) => `signing_keys/${ref}/${id}`

export const functionSecretAssociatedData = (ref: string, name: string) => `function_secrets/${ref}/${name}`

export const authSecretAssociatedData = (ref: string, field: string) => `project_settings/${ref}/auth/${field}`

export const rootKeyAssociatedData = (ref: string) => `project_settings/${ref}/pgsodium`

export const branchAssociatedData = (id: string) => `branches/${id}/secrets`

export const oauthKeyAssociatedData = (id: string) => `oauth_signing_keys/${id}`

export const hostAssociatedData = (name: string) => `hosts/${name}/key`

export const webhookAssociatedData = (endpointId: string, column: 'secret' | 'headers') =>
  `webhook_endpoints/${endpointId}/${column}`

export const logDrainAssociatedData = (id: string) => `log_drains/${id}/secrets`
