/* The module of the core.  `use` must be called first (core/__init__.py). */

#include "core.h"

PyObject *uncertain, *not_a_map;
PyTypeObject *source_type;

static PyObject *use(PyObject *module, PyObject *args)
{
    PyObject *answer, *error;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &answer, &error))
        return NULL;
    Py_INCREF(answer);
    Py_XDECREF(uncertain);
    uncertain = answer;
    Py_INCREF(error);
    Py_XDECREF(not_a_map);
    not_a_map = error;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"use", use, METH_VARARGS, NULL},
    {"load", (PyCFunction)(void (*)(void))load, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_of_core = {
    PyModuleDef_HEAD_INIT, "_core", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&module_of_core);
    PyObject *answering;
    if (!module)
        return NULL;
    make_crc_table();
    if (make_names())
        return NULL;
    source_type = (PyTypeObject *)PyType_FromSpec(&source_spec);
    answering = PyType_FromSpec(&answering_spec);
    if (!source_type || !answering
        || PyModule_AddObjectRef(module, "Source", (PyObject *)source_type)
        || PyModule_AddObjectRef(module, "Answering", answering)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(answering);
    return module;
}
