// Any DeepSpeed op: its functions do nothing.
#include <Python.h>
#define NAMED(name) PyInit_##name
#define INIT(name) NAMED(name)
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "op", NULL, -1, NULL};

PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void)
{
    PyObject* module = PyModule_Create(&definition);
    PyObject* names = PyModule_GetDict(module);
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    const char* code = "def __getattr__(name): return lambda *arguments: 0";
    return PyRun_String(code, Py_file_input, names, names) ? module : NULL;
}
