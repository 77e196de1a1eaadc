export interface Rule {
  /** Name of the counter. Rules with different names count separately. */
  name: string
  requests: number
  windowMs: number
}

export interface Decision {
  allowed: boolean
  limit: number
  remaining: number
  /** Length of the deciding rule's window. */
  windowMs: number
  /** Time until the current window ends. */
  resetMs: number
}
