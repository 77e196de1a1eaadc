/**
 * Resolves to whether the caller may still carry out the operation. A driver checks it after locking the project and
 * before the first change; a driver without locks checks it before every change. If it is false, the operation ends with
 * `Superseded`.
 */
export type Fence = () => Promise<boolean>
